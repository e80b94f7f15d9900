"""A recurrence as one opaque operator over the whole sequence, computed by a fast path without a graph over time.

Named tuples define what a recurrence's operator takes, keeps and returns; fast paths get these tuples whole. From them
this module derives the schemas, fake tensors and autograd formulas that PyTorch needs, for all recurrences.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import ClassVar, NamedTuple

import torch

from ..linear import matmul
from .fast_path import FastPath

# Names of the fields' types in PyTorch's operator schemas.
_SCHEMA_TYPES = {
    torch.Tensor: "Tensor",
    torch.Tensor | None: "Tensor?",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
}


class Recurrence:
    """Base class of the recurrences. Each has one instance, in the file of its public function.

    Fields of `Inputs` of type `torch.Tensor` have gradients; optional ones, such as masks, have none.

    Args:
        module: the name of the module that creates the instance, part of the operator's name. Operators are global, so
            copies of one module (such as a cell's file in several checkpoints) need different names.
        paths: the fast paths by name, fastest first.

    Attributes:
        name: the operator's name.
        Inputs, Options, Trace: the named tuples of `FastPath`. `Trace.empty(inputs, options)` returns empty tensors of
            the right shapes and dtypes, for a path to fill.
    """

    name: ClassVar[str]
    Inputs: ClassVar[type[NamedTuple]]
    Options: ClassVar[type[NamedTuple]]
    Trace: ClassVar[type[NamedTuple]]

    def __init__(self, module: str, paths: Mapping[str, FastPath]):
        self.paths = paths
        self._define_operators(re.sub(r"\W", "_", module, flags=re.ASCII))

    def empty_gradients(self, trace: NamedTuple, inputs: NamedTuple) -> NamedTuple:
        """Returns `Inputs` of empty tensors like the gradients. Override it if `kept_inputs` drops some inputs."""
        return self.Inputs(*(None if tensor is None else torch.empty_like(tensor) for tensor in inputs))

    def kept_inputs(self, inputs: NamedTuple) -> NamedTuple:
        """Returns the inputs for the backward pass; `None` for those that it does not read, to save memory."""
        return inputs

    def input_gradients(
        self, gradients: NamedTuple, trace: NamedTuple, inputs: NamedTuple, options: NamedTuple
    ) -> NamedTuple:
        """Returns `Inputs` of gradients from those of a fast path. Weight gradients are one product over all steps."""
        raise NotImplementedError

    def choose(self, implementation: str, sequence: torch.Tensor) -> str | None:
        """Returns the path for a layer's input: the named one, or for `"auto"` the first suitable one or `None`.

        Raises a `ValueError` if the named path cannot run on the input.
        """
        if implementation == "auto":
            for name, path in self.paths.items():
                # Compiled code must not depend on the length, so it takes the first supported path.
                is_worthwhile = torch.compiler.is_compiling() or path.is_worthwhile(sequence)
                if is_worthwhile and path.unsupported_reason(sequence) is None:
                    return name
            return None
        reason = self.paths[implementation].unsupported_reason(sequence)
        if reason:
            raise ValueError(f"the {implementation} implementation cannot run here: {reason}")
        return implementation

    def run(self, inputs: NamedTuple, options: NamedTuple, path: str) -> NamedTuple:
        """Returns the `Trace` of a sequence, computed by the named fast path; differentiable once."""
        return self.Trace(*self.forward_operator(*inputs, *options, path))

    def _define_operators(self, namespace: str) -> None:
        inputs, options, trace = (kind.__annotations__ for kind in (self.Inputs, self.Options, self.Trace))
        differentiable = [index for index, kind in enumerate(inputs.values()) if kind is torch.Tensor]
        path = {"path": str}
        # Arguments of the backward operator, where some inputs are dropped and some results have no gradient.
        grad_trace = {f"grad_{name}": torch.Tensor | None for name in trace}
        saved_trace = {f"saved_{name}": torch.Tensor for name in trace}
        kept_inputs = dict.fromkeys(inputs, torch.Tensor | None)
        of_forward, of_backward = (self.Inputs, self.Options), (self.Trace, self.Trace, self.Inputs, self.Options)

        def forward(*arguments):
            *flat, path = arguments
            return tuple(self.paths[path].forward(*split_fields(flat, *of_forward)))

        def backward(*arguments):
            *flat, path = arguments
            grad_trace, trace, inputs, options = split_fields(flat, *of_backward)
            gradients = self.paths[path].backward(grad_trace, trace, inputs, options)
            gradients = self.input_gradients(gradients, trace, inputs, options)
            return tuple(gradients[index] for index in differentiable)

        def empty_trace(*arguments):
            return tuple(self.Trace.empty(*split_fields(arguments, *of_forward)))

        def empty_gradients(*arguments):
            _, trace, inputs, _ = split_fields(arguments, *of_backward)
            gradients = self.empty_gradients(trace, inputs)
            return tuple(gradients[index] for index in differentiable)

        def save_for_backward(ctx, inputs, output):
            *flat, path = inputs
            inputs, ctx.options = split_fields(flat, *of_forward)
            ctx.path = path
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*output, *self.kept_inputs(inputs))

        def differentiate(ctx, *grad_trace):
            # The compiler traces this with fake tensors, so it calls the opaque backward operator.
            results = iter(self.backward_operator(*grad_trace, *ctx.saved_tensors, *ctx.options, ctx.path))
            gradients = [next(results) if kind is torch.Tensor else None for kind in inputs.values()]
            return *gradients, *[None] * (len(options) + 1)

        def define(direction, function, arguments, num_results):
            taken = ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in arguments.items())
            schema = f"({taken}) -> ({', '.join(['Tensor'] * num_results)})"
            name = f"{namespace}::{self.name}_{direction}"
            # A path may replay its own CUDA graphs, which cannot be part of a graph that the compiler records.
            tags = [torch.Tag.cudagraph_unsafe]
            return torch.library.custom_op(name, function, mutates_args=(), schema=schema, tags=tags)

        forward_arguments = inputs | options | path
        backward_arguments = grad_trace | saved_trace | kept_inputs | options | path
        self.forward_operator = define("forward", forward, forward_arguments, len(trace))
        self.forward_operator.register_fake(empty_trace)
        self.forward_operator.register_autograd(differentiate, setup_context=save_for_backward)
        self.backward_operator = define("backward", backward, backward_arguments, len(differentiable))
        self.backward_operator.register_fake(empty_gradients)


def multiplies_in_bfloat16(device_type: str) -> bool:
    """Returns whether autocast computes products with weights in bfloat16."""
    return torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) == torch.bfloat16


def product_dtype(options: NamedTuple) -> torch.dtype:
    """Returns the dtype of products with weights, by the field `product_in_bfloat16` of the options."""
    return torch.bfloat16 if options.product_in_bfloat16 else torch.float32


def weight_gradient(grad_outputs: torch.Tensor, inputs: torch.Tensor, options: NamedTuple) -> torch.Tensor:
    """Returns the gradient of a weight `[out, in]` from `[*, *, out]` and `[*, *, in]`: one product over all steps."""
    grad_outputs, inputs = (tensor.flatten(0, 1).to(product_dtype(options)) for tensor in (grad_outputs, inputs))
    return matmul(grad_outputs.t(), inputs).float()


def split_fields(flat: Iterable, *kinds: type[NamedTuple]) -> list[NamedTuple]:
    """Returns named tuples of these classes, one after the other, with the entries of a flat list."""
    entries = iter(flat)
    return [kind(*islice(entries, len(kind._fields))) for kind in kinds]
