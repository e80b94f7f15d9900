"""The ordered-neurons recurrence of Shen, Tan, Sordoni & Courville (ICLR 2019), section 4.

`ordered_neurons` is the only entry point. Its fast paths, one file each, have a hand-derived backward pass and are
tested against the equations in `models/modeling_onlstm.py`. All tensors are time first. With `C` chunks of `K` units
each (`H = C * K`), the `G = 2 * C + 4 * H` gate columns are, in this order: master input gate (`C`), master forget
gate (`C`), cell candidate (`H`), input gate (`H`), forget gate (`H`), output gate (`H`).
"""

import torch

from ..linear import linear, matmul
from ..recurrence.operator import Recurrence, multiplies_in_bfloat16, needs_gradient
from .contract import Gradients, Inputs, Options, Trace
from .native import PATH as NATIVE
from .triton import PATH as TRITON

# Fastest first, as `"auto"` takes the first suitable one.
_PATHS = {"triton": TRITON, "native": NATIVE}
# Rows of a gradient to mask at a time, because PyTorch converts the booleans to numbers on a CPU.
_ROWS_OF_MASK = 1024


def ordered_neurons(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None,
    path: str,
    recurrent_scale: float = 1.0,
    recurrent_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs one ordered-neurons layer over a sequence.

    The cell state and all gates are computed in float32 (float64 for float64 input), whatever the dtype of the
    weights. Under bfloat16 autocast the product with `recurrent_weight` is in bfloat16. The paths cannot be
    differentiated twice.

    Args:
        input_gates, recurrent_weight, hidden, cell, mask, recurrent_mask: see `Inputs` in `contract.py`.
        path: `"native"`, the compiled CPU operator, or `"triton"`, kernels and recorded CUDA graphs on a GPU;
            `RECURRENCE.choose` returns a suitable one.
        recurrent_scale: factor for `recurrent_weight`; like the mask, it is applied once per sequence.

    Returns:
        The hidden states `[T, B, H]`, the last cell state `[B, C, K]` in the precision of the computation, and the
        means over chunks of the master input and the master forget gate, `[T, B, 2]`.

    Raises:
        ValueError: if the shapes are inconsistent.
    """
    _check_shapes(Inputs(input_gates, recurrent_weight, recurrent_mask, hidden, cell, mask))
    input_dtype, dtype = input_gates.dtype, torch.promote_types(input_gates.dtype, torch.float32)
    product_in_bfloat16 = multiplies_in_bfloat16(input_gates.device.type)
    if input_dtype != torch.bfloat16:
        input_gates = input_gates.to(dtype)
    inputs = Inputs(input_gates, recurrent_weight.to(dtype), recurrent_mask, hidden.to(dtype), cell.to(dtype), mask)
    options = Options(recurrent_scale, product_in_bfloat16, save_for_backward=needs_gradient(inputs))
    outputs, last_cell, means, *_ = RECURRENCE.run(inputs, options, path)
    return outputs.to(input_dtype), last_cell, means


def _check_shapes(inputs: Inputs) -> None:
    """Checks shapes, as the compiled operator gets only addresses and would read past the end of smaller tensors."""
    (length, batch_size, num_gates), (_, num_chunks, chunk_size) = inputs.input_gates.shape, inputs.cell.shape
    size = num_chunks * chunk_size
    weight = num_gates, size
    gates, state = (length, batch_size, 2 * num_chunks + 4 * size), (batch_size, num_chunks, chunk_size)
    expected = Inputs(gates, weight, weight, (batch_size, size), state, (length, batch_size))
    for name, tensor, shape in zip(Inputs._fields, inputs, expected, strict=True):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, not {list(tensor.shape)}")


class _OrderedNeurons(Recurrence):
    """The operator of `ordered_neurons`."""

    name = "ordered_neurons"
    Inputs, Options, Trace = Inputs, Options, Trace
    # A fast path may replay its own CUDA graphs, which cannot be part of a graph that the compiler records.
    tags = (torch.Tag.cudagraph_unsafe,)

    def empty_trace(self, inputs: Inputs, options: Options) -> Trace:
        return Trace.empty(inputs, options)

    def empty_gradients(self, trace: Trace, inputs: Inputs) -> Inputs:
        gradients = Gradients.empty(trace, inputs)
        return self._of_inputs(gradients, torch.empty_like(inputs.recurrent_weight))

    def kept_inputs(self, inputs: Inputs) -> Inputs:
        return Inputs(None, inputs.recurrent_weight, inputs.recurrent_mask, inputs.hidden, None, inputs.mask)

    def kept_trace(self, trace: Trace) -> Trace:
        return Trace(trace.outputs, *[None] * 5)

    def input_gradients(self, gradients: Gradients, trace: Trace, inputs: Inputs, options: Options) -> Inputs:
        grad_weight = _weight_gradient(gradients.input_gates, trace.outputs, inputs, options)
        return self._of_inputs(gradients, grad_weight)

    @staticmethod
    def _of_inputs(gradients: Gradients, grad_weight: torch.Tensor) -> Inputs:
        return Inputs(gradients.input_gates, grad_weight, None, gradients.hidden, gradients.cell, None)


def _weight_gradient(
    grad_gates: torch.Tensor, outputs: torch.Tensor, inputs: Inputs, options: Options
) -> torch.Tensor:
    """Returns the gradient of the recurrent weight, `[G, H]`: one product over all steps."""
    dtype = inputs.recurrent_weight.dtype
    product_dtype = torch.bfloat16 if options.product_in_bfloat16 else dtype
    previous = torch.cat([inputs.hidden.unsqueeze(0).to(outputs.dtype), outputs[:-1]])
    gates, previous = (tensor.flatten(0, 1).to(product_dtype) for tensor in (grad_gates, previous))
    gradient = matmul(gates.t(), previous).to(dtype)
    if options.recurrent_scale != 1:
        gradient *= options.recurrent_scale
    if inputs.recurrent_mask is not None:
        for start in range(0, len(gradient), _ROWS_OF_MASK):
            rows = slice(start, start + _ROWS_OF_MASK)
            gradient[rows].mul_(inputs.recurrent_mask[rows])
    return gradient


RECURRENCE = _OrderedNeurons(__name__, _PATHS)
PATHS = tuple(_PATHS)

__all__ = ["PATHS", "RECURRENCE", "linear", "ordered_neurons"]
