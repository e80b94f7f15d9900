"""The ordered-neurons recurrence of Shen, Tan, Sordoni & Courville (ICLR 2019), section 4.

`ordered_neurons` is the only entry point. Its fast paths, one file each, have a hand-derived backward pass and are
tested against the equations in `models/modeling_onlstm.py`. All tensors are time first. With `C` chunks of `K` units
each (`H = C * K`), the `G = 2 * C + 4 * H` gate columns are, in this order: master input gate (`C`), master forget
gate (`C`), cell candidate (`H`), input gate (`H`), forget gate (`H`), output gate (`H`).
"""

import torch

from ..linear import linear
from ..recurrence.operator import Recurrence, multiplies_in_bfloat16, weight_gradient
from .contract import Gradients, Inputs, Options, Trace
from .native import PATH as NATIVE
from .triton import PATH as TRITON

# Fastest first, as `"auto"` takes the first suitable one.
_PATHS = {"triton": TRITON, "native": NATIVE}


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

    The cell state and all gates are computed in float32, whatever the dtype of the weights. Under bfloat16 autocast
    the product with `recurrent_weight` is in bfloat16. The paths cannot be differentiated twice.

    Args:
        input_gates, recurrent_weight, hidden, cell, mask, recurrent_mask: see `Inputs` in `contract.py`.
        path: `"native"`, the compiled CPU operator, or `"triton"`, kernels and recorded CUDA graphs on a GPU;
            `RECURRENCE.choose` returns a suitable one.
        recurrent_scale: factor for `recurrent_weight`.

    Returns:
        The hidden states `[T, B, H]`, the last cell state `[B, C, K]` in float32, and the means over chunks of the
        master input and the master forget gate, `[T, B, 2]`.

    Raises:
        ValueError: if the shapes are inconsistent.
    """
    gates = input_gates if input_gates.dtype == torch.bfloat16 else input_gates.float()
    inputs = Inputs(gates, recurrent_weight.float(), hidden.float(), cell.float(), mask, recurrent_mask)
    _check_shapes(inputs)
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs[:4])
    options = Options(recurrent_scale, multiplies_in_bfloat16(input_gates.device.type), needs_gradient)
    outputs, last_cell, means, *_ = RECURRENCE.run(inputs, options, path)
    return outputs.to(input_gates.dtype), last_cell, means


def _check_shapes(inputs: Inputs) -> None:
    """Checks shapes, as the compiled operator gets only addresses and would read past the end of smaller tensors."""
    (length, batch_size, num_gates), (_, num_chunks, chunk_size) = inputs.input_gates.shape, inputs.cell.shape
    size = num_chunks * chunk_size
    gates, state = (length, batch_size, 2 * num_chunks + 4 * size), (batch_size, num_chunks, chunk_size)
    weight = num_gates, size
    expected = Inputs(gates, weight, (batch_size, size), state, (length, batch_size), weight)
    for name, tensor, shape in zip(Inputs._fields, inputs, expected, strict=True):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, not {list(tensor.shape)}")


class _OrderedNeurons(Recurrence):
    """The operator of `ordered_neurons`."""

    name = "ordered_neurons"
    Inputs, Options, Trace = Inputs, Options, Trace

    def empty_gradients(self, trace: Trace, inputs: Inputs) -> Inputs:
        input_gates, hidden, cell = Gradients.empty(trace, inputs)
        return Inputs(input_gates, torch.empty_like(inputs.recurrent_weight), hidden, cell, None, None)

    def kept_inputs(self, inputs: Inputs) -> Inputs:
        return inputs._replace(input_gates=None, cell=None)

    def input_gradients(self, gradients: Gradients, trace: Trace, inputs: Inputs, options: Options) -> Inputs:
        previous = torch.cat([inputs.hidden.unsqueeze(0).to(trace.outputs.dtype), trace.outputs[:-1]])
        grad_weight = weight_gradient(gradients.input_gates, previous, options)
        if options.recurrent_scale != 1:
            grad_weight *= options.recurrent_scale
        if inputs.recurrent_mask is not None:
            grad_weight.masked_fill_(~inputs.recurrent_mask, 0)
        return Inputs(gradients.input_gates, grad_weight, gradients.hidden, gradients.cell, None, None)


RECURRENCE = _OrderedNeurons(__name__, _PATHS)
PATHS = tuple(_PATHS)

__all__ = ["PATHS", "RECURRENCE", "linear", "ordered_neurons"]
