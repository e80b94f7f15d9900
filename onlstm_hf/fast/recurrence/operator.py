"""A recurrence as one opaque operator over the whole sequence, computed by a fast path without a graph over time.

Named tuples define what a recurrence's operator takes, keeps and returns; fast paths get these tuples whole. From them
this module derives the schemas, fake tensors and autograd formulas that PyTorch needs, for all recurrences.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch

from .fast_path import FastPath, choose_path
from .tensor_tuples import Layout, flatten, schema


class Recurrence:
    """Base class of the recurrences. Each has one instance, in the file of its public function.

    Fields of `Inputs` of type `torch.Tensor` have gradients; optional ones, such as masks, have none. `Options` needs
    the field `product_in_bfloat16`.

    Args:
        module: the name of the module that creates the instance, part of the operator's name. Operators are global, so
            copies of one module (such as a cell's file in several checkpoints) need different names.
        paths: the fast paths by name, fastest first.

    Attributes:
        name: the operator's name.
        Inputs, Options, Trace: the named tuples of `FastPath`.
        tags: the operator's tags (`torch.Tag`).
    """

    name: ClassVar[str]
    Inputs: ClassVar[type[NamedTuple]]
    Options: ClassVar[type[NamedTuple]]
    Trace: ClassVar[type[NamedTuple]]
    tags: ClassVar[tuple[torch.Tag, ...]] = ()

    def __init__(self, module: str, paths: Mapping[str, FastPath]):
        self.paths = paths
        self.input_layout, self._saved = Layout(self.Inputs), Layout(self.Trace, self.Inputs)
        self._define_operators(re.sub(r"\W", "_", module, flags=re.ASCII))

    def empty_trace(self, inputs: NamedTuple, options: NamedTuple) -> NamedTuple:
        """Returns an empty `Trace` with the right shapes, dtypes and devices."""
        raise NotImplementedError

    def empty_gradients(self, trace: NamedTuple, inputs: NamedTuple) -> NamedTuple:
        """Returns `Inputs` of empty tensors like the gradients. Override it if `kept_inputs` drops some inputs."""
        empty = (None if tensor is None else torch.empty_like(tensor) for tensor in flatten(inputs))
        return self.input_layout.unflatten(empty)[0]

    def kept_inputs(self, inputs: NamedTuple) -> NamedTuple:
        """Returns the inputs for the backward pass; `None` for those that it does not read, to save memory."""
        return inputs

    def kept_trace(self, trace: NamedTuple) -> NamedTuple:
        """Returns the trace for `input_gradients`; `None` for fields that it does not read, to save memory."""
        return trace

    def input_gradients(
        self, gradients: NamedTuple, trace: NamedTuple, inputs: NamedTuple, options: NamedTuple
    ) -> NamedTuple:
        """Returns `Inputs` of gradients from those of a fast path. Weight gradients are one product over all steps."""
        raise NotImplementedError

    def choose(self, implementation: str, sequence: torch.Tensor) -> str | None:
        """Returns the path's name for a layer's input, or `None` if the equations should run (`choose_path`)."""
        return choose_path(self.paths, implementation, sequence)

    def run(self, inputs: NamedTuple, options: NamedTuple, path: str) -> NamedTuple:
        """Returns the `Trace` of a sequence, computed by the named fast path; differentiable once."""
        if torch.compiler.is_compiling():
            return self.Trace(*self.forward_operator(*flatten(inputs, options), path))
        # Outside compiled code, the calls below have less overhead than the operator.
        if needs_gradient(inputs):
            return self.Trace(*_Function.apply(self, inputs, options, path, *flatten(inputs)))
        return self.paths[path].forward(inputs, options)

    def _save_for_backward(self, ctx, inputs: NamedTuple, options: NamedTuple, path: str, trace: NamedTuple) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*flatten(trace, self.kept_inputs(inputs)))
        ctx.options, ctx.path = options, path

    def _differentiate(
        self, ctx, grad_trace: Sequence[torch.Tensor | None], by_operator: bool
    ) -> list[torch.Tensor | None]:
        """Returns the gradient of every input, in the order of the flat list."""
        trace, inputs = self._saved.unflatten(ctx.saved_tensors)
        grad_trace, options = self.Trace(*grad_trace), ctx.options
        if by_operator:
            results = iter(self.backward_operator(*flatten(grad_trace, trace, inputs, options), ctx.path))
            return [next(results) if kind is torch.Tensor else None for kind in self.input_layout.fields.values()]
        gradients = self.paths[ctx.path].backward(grad_trace, trace, inputs, options)
        # Frees the memory that only the steps needed, before the weight gradients are computed.
        trace = self.kept_trace(trace)
        ctx.maybe_clear_saved_tensors()
        return flatten(self.input_gradients(gradients, trace, inputs, options))

    def _define_operators(self, namespace: str) -> None:
        inputs, options, trace = (Layout(kind).fields for kind in (self.Inputs, self.Options, self.Trace))
        differentiable = [index for index, kind in enumerate(inputs.values()) if kind is torch.Tensor]
        path = {"path": str}
        # Arguments of the backward operator, where some inputs are dropped and some results have no gradient.
        grad_trace = {f"grad_{name}": torch.Tensor | None for name in trace}
        saved_trace = {f"saved_{name}": torch.Tensor for name in trace}
        kept_inputs = dict.fromkeys(inputs, torch.Tensor | None)
        of_forward = Layout(self.Inputs, self.Options)
        of_backward = Layout(self.Trace, self.Trace, self.Inputs, self.Options)

        def forward(*arguments):
            *flat, path = arguments
            return tuple(self.paths[path].forward(*of_forward.unflatten(flat)))

        def backward(*arguments):
            *flat, path = arguments
            grad_trace, trace, inputs, options = of_backward.unflatten(flat)
            gradients = self.paths[path].backward(grad_trace, trace, inputs, options)
            gradients = flatten(self.input_gradients(gradients, trace, inputs, options))
            return tuple(gradients[index] for index in differentiable)

        def empty_trace(*arguments):
            return tuple(self.empty_trace(*of_forward.unflatten(arguments)))

        def empty_gradients(*arguments):
            _, trace, inputs, _ = of_backward.unflatten(arguments)
            gradients = flatten(self.empty_gradients(trace, inputs))
            return tuple(gradients[index] for index in differentiable)

        def save_for_backward(ctx, inputs, output):
            *flat, path = inputs
            inputs, options = of_forward.unflatten(flat)
            self._save_for_backward(ctx, inputs, options, path, self.Trace(*output))

        def differentiate(ctx, *grad_trace):
            # The compiler traces this with fake tensors, so it calls the opaque backward operator.
            return *self._differentiate(ctx, grad_trace, by_operator=True), *[None] * (len(options) + 1)

        self.forward_operator = torch.library.custom_op(
            f"{namespace}::{self.name}_forward",
            forward,
            mutates_args=(),
            schema=schema(inputs | options | path, len(trace)),
            tags=self.tags,
        )
        self.forward_operator.register_fake(empty_trace)
        self.forward_operator.register_autograd(differentiate, setup_context=save_for_backward)
        self.backward_operator = torch.library.custom_op(
            f"{namespace}::{self.name}_backward",
            backward,
            mutates_args=(),
            schema=schema(grad_trace | saved_trace | kept_inputs | options | path, len(differentiable)),
            tags=self.tags,
        )
        self.backward_operator.register_fake(empty_gradients)


def multiplies_in_bfloat16(device_type: str) -> bool:
    """Returns whether autocast computes products with weights in bfloat16."""
    return torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) == torch.bfloat16


def needs_gradient(inputs: NamedTuple) -> bool:
    """Returns whether autograd needs the gradient of any input."""
    if torch.is_grad_enabled():
        for tensor in flatten(inputs):
            if tensor is not None and tensor.requires_grad:
                return True
    return False


class _Function(torch.autograd.Function):
    """The operator without its overhead, for code that is not compiled."""

    @staticmethod
    def forward(ctx, recurrence: Recurrence, inputs: NamedTuple, options: NamedTuple, path: str, *_):
        """Takes the inputs as tuples and, so that autograd finds the tensors, as a flat list."""
        trace = recurrence.paths[path].forward(inputs, options)
        recurrence._save_for_backward(ctx, inputs, options, path, trace)
        ctx.recurrence = recurrence
        return tuple(trace)

    @staticmethod
    def backward(ctx, *grad_trace: torch.Tensor | None):
        # Gradients are enabled with `create_graph`: the operator then refuses a second differentiation.
        by_operator = torch.compiler.is_compiling() or torch.is_grad_enabled()
        return None, None, None, None, *ctx.recurrence._differentiate(ctx, grad_trace, by_operator)
