"""The ordered-neurons recurrence of Shen, Tan, Sordoni & Courville (ICLR 2019), section 4.

`ordered_neurons` is the one entrance. Behind it stand the readable reference, which is the definition, and faster
paths with a hand-derived backward pass, a file each, which are tested against it. All tensors are time first, as the
loop over time reads them. With `C` chunks of `K` units each (`H = C * K`), the `G = 2 * C + 4 * H` gate columns are,
in this order: master input gate (`C`), master forget gate (`C`), cell candidate (`H`), input gate (`H`), forget gate
(`H`), output gate (`H`).
"""

import re
from typing import NamedTuple

import torch

from ..fast_path import FastPath, choose_path
from ..linear import matmul
from .equations import reference, state_dtype
from .fused import PATH as FUSED
from .native import PATH as NATIVE
from .triton import PATH as TRITON

# From the fastest on.
_FAST_PATHS = {"triton": TRITON, "native": NATIVE, "fused": FUSED}
IMPLEMENTATIONS = ("auto", "reference", *_FAST_PATHS)
# Rows of a mask at a time: on a CPU booleans become as many numbers before they are multiplied with.
_ROWS_OF_MASK = 1024
# Operators are global: a second copy of this file, which came with a checkpoint, must not replace those of the first.
_OPERATORS = re.sub(r"\W", "_", __name__, flags=re.ASCII)


class OrderedNeuronsOutput(NamedTuple):
    """What the recurrence of one layer returns.

    Attributes:
        outputs: `[T, B, H]`, the hidden states `h_t`.
        cell: `[B, C, K]`, the last cell state, in the precision that it was computed in.
        forget_distances: `[T, B]`, `1 - mean_C(master forget gate)`.
        input_distances: `[T, B]`, `mean_C(master input gate)`.
    """

    outputs: torch.Tensor
    cell: torch.Tensor
    forget_distances: torch.Tensor
    input_distances: torch.Tensor


def ordered_neurons(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None = None,
    implementation: str = "auto",
    recurrent_scale: float = 1.0,
    recurrent_mask: torch.Tensor | None = None,
) -> OrderedNeuronsOutput:
    """Runs one ordered-neurons layer over a sequence.

    The cell state and all gates are computed in float32 (float64 for float64 input), whatever the dtype of the
    weights. Under bfloat16 autocast the product with `recurrent_weight` is in bfloat16. The fast paths cannot be
    differentiated twice; the reference can.

    Args:
        input_gates: `[T, B, G]`, the affine map of the layer's input, with both biases in it.
        recurrent_weight: `[G, H]`, the map of the previous hidden state.
        hidden: `[B, H]`, the hidden state before the first step.
        cell: `[B, C, K]`, the cell state before the first step; its shape says how many chunks there are.
        mask: optional `[T, B]` booleans, `False` where a step must leave the state as it is (padding).
        implementation: `"reference"`; `"fused"`, PyTorch operations without a graph over time, on any device;
            `"native"`, the compiled CPU operator; `"triton"`, kernels and recorded CUDA graphs on a GPU; or `"auto"`,
            the fastest one that fits the tensors.
        recurrent_scale: factor of `recurrent_weight`, folded into it once per sequence.
        recurrent_mask: optional `[G, H]` booleans, `False` where drop-connect leaves out an entry of
            `recurrent_weight`; folded into it as well.

    Raises:
        ValueError: if the shapes do not fit together, the implementation is unknown, or the tensors do not fit it.
    """
    _check_shapes(input_gates, recurrent_weight, hidden, cell, mask, recurrent_mask)
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, not {implementation!r}")
    run = reference if implementation == "reference" else _fast
    outputs, last_cell, distances = run(
        input_gates, recurrent_weight, hidden, cell, mask, recurrent_scale, recurrent_mask, implementation
    )
    input_distances, one_minus_forget = distances.unbind(dim=-1)
    return OrderedNeuronsOutput(outputs, last_cell, 1 - one_minus_forget, input_distances)


def _fast(input_gates, recurrent_weight, hidden, cell, mask, recurrent_scale, recurrent_mask, implementation):
    """One opaque operator for the whole sequence: no graph over time, a hand-derived backward pass."""
    input_dtype, dtype = input_gates.dtype, state_dtype(input_gates)
    product_in_bfloat16 = _product_dtype(input_gates, dtype) == torch.bfloat16
    if input_dtype != torch.bfloat16:
        input_gates = input_gates.to(dtype)
    tensors = (input_gates, recurrent_weight.to(dtype), hidden.to(dtype), cell.to(dtype))
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    # An operator that the compiler can take as it is costs more at every call than the two others.
    if torch.compiler.is_compiling():
        run = _forward_operator
    else:
        run = _Function.apply if differentiable else _forward
    outputs, last_cell, distances, *_ = run(
        *tensors, mask, recurrent_mask, recurrent_scale, product_in_bfloat16, differentiable, implementation
    )
    return outputs.to(input_dtype), last_cell, distances


def _product_dtype(tensor: torch.Tensor, state_dtype: torch.dtype) -> torch.dtype:
    """The dtype of the product with the recurrent weight: the autocast one, or that of the state."""
    device_type = tensor.device.type
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return state_dtype


def _check_shapes(input_gates, recurrent_weight, hidden, cell, mask, recurrent_mask) -> None:
    if input_gates.dim() != 3 or input_gates.shape[0] == 0:
        raise ValueError(f"input_gates must be [T, B, G] with T >= 1, not {list(input_gates.shape)}")
    length, batch_size, num_gates = input_gates.shape
    if cell.dim() != 3 or cell.shape[0] != batch_size:
        raise ValueError(f"the cell state must be [B={batch_size}, C, K], not {list(cell.shape)}")
    size = cell.shape[1] * cell.shape[2]
    expected = {
        "input_gates": (input_gates, [length, batch_size, 2 * cell.shape[1] + 4 * size]),
        "recurrent_weight": (recurrent_weight, [num_gates, size]),
        "hidden": (hidden, [batch_size, size]),
        "mask": (mask, [length, batch_size]),
        "recurrent_mask": (recurrent_mask, [num_gates, size]),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and list(tensor.shape) != shape:
            raise ValueError(
                f"{name} must be {shape} for a cell state of {list(cell.shape)}, not {list(tensor.shape)}"
            )
    for name, booleans in (("mask", mask), ("recurrent_mask", recurrent_mask)):
        if booleans is not None and booleans.dtype != torch.bool:
            raise ValueError(f"{name} must hold booleans, not {booleans.dtype}")


def _forward(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None,
    recurrent_mask: torch.Tensor | None,
    recurrent_scale: float,
    product_in_bfloat16: bool,
    save_for_backward: bool,
    implementation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The recurrence by one of the fast paths (see `FastPath.forward`)."""
    path = choose_path(_FAST_PATHS, implementation, input_gates)
    recurrent_weight, *recurrent_mask = _drop_connections(path, recurrent_weight, recurrent_mask)
    return path.forward(
        input_gates,
        recurrent_weight,
        hidden,
        cell,
        mask,
        recurrent_scale,
        product_in_bfloat16,
        save_for_backward,
        *recurrent_mask,
    )


def _drop_connections(path: FastPath, recurrent_weight: torch.Tensor, recurrent_mask: torch.Tensor | None) -> tuple:
    """The weight and the mask for the paths that take it, else the weight that it leaves."""
    if path.takes_recurrent_mask:
        return recurrent_weight, recurrent_mask
    return (recurrent_weight if recurrent_mask is None else recurrent_weight * recurrent_mask,)


def _backward(
    grad_outputs: torch.Tensor | None,
    grad_last_cell: torch.Tensor | None,
    grad_distances: torch.Tensor | None,
    outputs: torch.Tensor,
    last_cell: torch.Tensor,
    cells: torch.Tensor,
    softmaxes: torch.Tensor,
    activations: torch.Tensor,
    recurrent_weight: torch.Tensor,
    mask: torch.Tensor | None,
    recurrent_mask: torch.Tensor | None,
    recurrent_scale: float,
    product_in_bfloat16: bool,
    implementation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of the input gates and the first state by one of the fast paths (see `FastPath.backward`)."""
    path = choose_path(_FAST_PATHS, implementation, outputs)
    recurrent_weight, *recurrent_mask = _drop_connections(path, recurrent_weight, recurrent_mask)
    return path.backward(
        grad_outputs,
        grad_last_cell,
        grad_distances,
        outputs,
        last_cell,
        cells,
        softmaxes,
        activations,
        recurrent_weight,
        mask,
        recurrent_scale,
        product_in_bfloat16,
        *recurrent_mask,
    )


# A fast path may replay CUDA graphs of its own, which cannot be part of one that the compiler records.
_forward_operator, _backward_operator = (
    torch.library.custom_op(
        f"{_OPERATORS}::ordered_neurons_{direction}", run, mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,)
    )
    for direction, run in (("forward", _forward), ("backward", _backward))
)


@_forward_operator.register_fake
def _(input_gates, recurrent_weight, hidden, cell, mask, recurrent_mask, recurrent_scale, product_in_bfloat16,
      save_for_backward, _):  # fmt: skip
    length, batch_size, _ = input_gates.shape
    saved_length = length if save_for_backward else 0
    return (
        input_gates.new_empty(length, batch_size, hidden.shape[1]),
        torch.empty_like(cell),
        cell.new_empty(length, batch_size, 2),
        cell.new_empty(saved_length, batch_size, hidden.shape[1]),
        cell.new_empty(saved_length, batch_size, 2, cell.shape[1]),
        cell.new_empty(saved_length, batch_size, 4, hidden.shape[1]),
    )


@_backward_operator.register_fake
def _(grad_outputs, grad_last_cell, grad_distances, outputs, last_cell, cells, softmaxes, activations,
      recurrent_weight, *_):  # fmt: skip
    return (
        outputs.new_empty(*outputs.shape[:2], recurrent_weight.shape[0]),
        last_cell.new_empty(len(last_cell), recurrent_weight.shape[1]),
        torch.empty_like(last_cell),
    )


def _save_for_backward(ctx, inputs, output):
    _, recurrent_weight, hidden, _, mask, recurrent_mask, *ctx.options, _, ctx.implementation = inputs
    outputs, last_cell, _, *saved = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(outputs, last_cell, *saved, recurrent_weight, hidden, mask, recurrent_mask)


def _differentiate(ctx, grad_outputs, grad_last_cell, grad_distances, *_):
    outputs, *saved, recurrent_weight, hidden, mask, recurrent_mask = ctx.saved_tensors
    recurrent_scale, product_in_bfloat16 = ctx.options
    # Only the operator refuses to be differentiated again, which with `create_graph` is what autograd keeps track for.
    run = _backward_operator if torch.compiler.is_compiling() or torch.is_grad_enabled() else _backward
    grad_gates, grad_hidden, grad_cell = run(
        grad_outputs, grad_last_cell, grad_distances, outputs, *saved, recurrent_weight, mask, recurrent_mask,
        *ctx.options, ctx.implementation,
    )  # fmt: skip
    # Most of what was saved has done its work: the weight's gradient needs the memory.
    del saved
    ctx.maybe_clear_saved_tensors()
    grad_weight = _weight_gradient(grad_gates, outputs, hidden, recurrent_weight.dtype, product_in_bfloat16)
    if recurrent_scale != 1:
        grad_weight *= recurrent_scale
    if recurrent_mask is not None:
        for start in range(0, len(grad_weight), _ROWS_OF_MASK):
            rows = slice(start, start + _ROWS_OF_MASK)
            grad_weight[rows].mul_(recurrent_mask[rows])
    return grad_gates, grad_weight, grad_hidden, grad_cell, *[None] * 6


def _weight_gradient(
    grad_gates: torch.Tensor,
    outputs: torch.Tensor,
    hidden: torch.Tensor,
    dtype: torch.dtype,
    product_in_bfloat16: bool,
) -> torch.Tensor:
    """Gradient of the recurrent weight as the steps read it, `[G, H]`: one product over all of them."""
    product_dtype = torch.bfloat16 if product_in_bfloat16 else dtype
    previous = torch.cat([hidden.unsqueeze(0).to(outputs.dtype), outputs[:-1]])
    gates, previous = (tensor.flatten(0, 1).to(product_dtype) for tensor in (grad_gates, previous))
    return matmul(gates.t(), previous).to(dtype)


_forward_operator.register_autograd(_differentiate, setup_context=_save_for_backward)


class _Function(torch.autograd.Function):
    """The operator without its costs, for where nothing is compiled."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _forward(*inputs)
        _save_for_backward(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)
