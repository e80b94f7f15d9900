"""A recurrence as one opaque operator over the whole sequence, without a graph over time, by one of its fast paths.

A recurrence says by named tuples what its operator takes, keeps and returns; a fast path is given these whole. This
module makes the schemas, shapes for the compiler and autograd that PyTorch needs of them, once for all recurrences.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch

from .fast_path import FastPath, choose_path
from .tensor_tuples import Layout, flatten, schema


class Recurrence:
    """Base of the recurrences. Each has one instance, in the file of its public function.

    The named tuples' fields of type `torch.Tensor` in `Inputs` have gradients; optional ones, such as masks,
    have none. `Options` needs the field `product_in_bfloat16`.

    Args:
        module: the name of the module that makes the instance. Operators are global, and a second copy of that module,
            which came with a checkpoint, must not replace those of the first.
        paths: the fast paths by name, from the fastest on.

    Attributes:
        name: that of the operator.
        Inputs, Options, Trace: the named tuples of `FastPath`.
        tags: those of the operator (`torch.Tag`).
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
        """The `Trace` of a sequence before anything is written to it: shapes, dtypes and devices."""
        raise NotImplementedError

    def empty_gradients(self, trace: NamedTuple, inputs: NamedTuple) -> NamedTuple:
        """`Inputs` of empty tensors like the gradients; to be overridden where `kept_inputs` leaves some out."""
        empty = (None if tensor is None else torch.empty_like(tensor) for tensor in flatten(inputs))
        return self.input_layout.unflatten(empty)[0]

    def kept_inputs(self, inputs: NamedTuple) -> NamedTuple:
        """The inputs for the backward pass. `None` in place of those that it does not read saves memory."""
        return inputs

    def kept_trace(self, trace: NamedTuple) -> NamedTuple:
        """The trace for `input_gradients`. `None` in place of what that does not read saves memory."""
        return trace

    def input_gradients(
        self, gradients: NamedTuple, trace: NamedTuple, inputs: NamedTuple, options: NamedTuple
    ) -> NamedTuple:
        """`Inputs` of gradients from what a fast path returned: those of weights are one product over all steps."""
        raise NotImplementedError

    def choose(self, implementation: str, sequence: torch.Tensor) -> str | None:
        """The name of the path for a layer's input, `None` where the equations should run instead (`choose_path`)."""
        return choose_path(self.paths, implementation, sequence)

    def run(self, inputs: NamedTuple, options: NamedTuple, path: str) -> NamedTuple:
        """The `Trace` of a sequence by the fast path of that name; differentiable, once."""
        if torch.compiler.is_compiling():
            return self.Trace(*self.forward_operator(*flatten(inputs, options), path))
        # Outside compiled code the two ways below cost less at every call than the operator does.
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
        """The gradient of every input, by the order of the flat list."""
        trace, inputs = self._saved.unflatten(ctx.saved_tensors)
        grad_trace, options = self.Trace(*grad_trace), ctx.options
        if by_operator:
            results = iter(self.backward_operator(*flatten(grad_trace, trace, inputs, options), ctx.path))
            return [next(results) if kind is torch.Tensor else None for kind in self.input_layout.fields.values()]
        gradients = self.paths[ctx.path].backward(grad_trace, trace, inputs, options)
        # Memory that only the steps needed is given back before the gradients of the weights, which need memory, too.
        trace = self.kept_trace(trace)
        ctx.maybe_clear_saved_tensors()
        return flatten(self.input_gradients(gradients, trace, inputs, options))

    def _define_operators(self, namespace: str) -> None:
        inputs, options, trace = (Layout(kind).fields for kind in (self.Inputs, self.Options, self.Trace))
        differentiable = [index for index, kind in enumerate(inputs.values()) if kind is torch.Tensor]
        path = {"path": str}
        # The arguments of the backward operator; some inputs are not kept, and some results have no gradient.
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
            # The compiler traces this with tensors that have no memory: the operator is opaque to it.
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
    """Returns whether autocast lets products with weights be in bfloat16."""
    return torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) == torch.bfloat16


def needs_gradient(inputs: NamedTuple) -> bool:
    """Returns whether autograd will ask for the gradient of one of the inputs."""
    if torch.is_grad_enabled():
        for tensor in flatten(inputs):
            if tensor is not None and tensor.requires_grad:
                return True
    return False


class _Function(torch.autograd.Function):
    """The operator without its costs, for where nothing is compiled."""

    @staticmethod
    def forward(ctx, recurrence: Recurrence, inputs: NamedTuple, options: NamedTuple, path: str, *_):
        """The inputs once as they are, and once as a flat list, in which autograd looks for tensors."""
        trace = recurrence.paths[path].forward(inputs, options)
        recurrence._save_for_backward(ctx, inputs, options, path, trace)
        ctx.recurrence = recurrence
        return tuple(trace)

    @staticmethod
    def backward(ctx, *grad_trace: torch.Tensor | None):
        # Gradients are enabled here with `create_graph`: the operator then refuses to be differentiated a second time.
        by_operator = torch.compiler.is_compiling() or torch.is_grad_enabled()
        return None, None, None, None, *ctx.recurrence._differentiate(ctx, grad_trace, by_operator)
