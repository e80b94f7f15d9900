"""Arguments and results of the fast paths of the ordered-neurons recurrence (see `FastPath`).

Shapes have `T` steps, `B` rows, `C` chunks of `K` units (`H = C * K`) and `G = 2 * C + 4 * H` gates. Sequences (input
gates, outputs and their gradients) are bfloat16 or float32, all other tensors float32. `csrc/onlstm.cpp` has the same
fields in the same order.
"""

from typing import NamedTuple

import torch


class Inputs(NamedTuple):
    """Inputs of the recurrence.

    Attributes:
        input_gates: `[T, B, G]`, the affine map of the layer's input, including both biases.
        recurrent_weight: `[G, H]`, the map of the previous hidden state.
        hidden: `[B, H]`, the hidden state before the first step.
        cell: `[B, C, K]`, the cell state before the first step.
        mask: `[T, B]` booleans, `False` where a step does not change the state, or `None`.
        recurrent_mask: `[G, H]` booleans, `False` where drop-connect drops an entry of the weight, or `None`.
    """

    input_gates: torch.Tensor
    recurrent_weight: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor
    mask: torch.Tensor | None
    recurrent_mask: torch.Tensor | None


class Options(NamedTuple):
    """The recurrent weight's factor, the dtype of its products, and whether there will be a backward pass."""

    recurrent_scale: float
    product_in_bfloat16: bool
    save_for_backward: bool


class Trace(NamedTuple):
    """The three results, and what else the backward pass needs.

    Attributes:
        outputs: `[T, B, H]`, the hidden states.
        last_cell: `[B, C, K]`.
        distances: `[T, B, 2]`, the means over chunks of the master input and the master forget gate.
        cells: `[T, B, H]`, the cell states before each step. Without `save_for_backward` this field and the following
            ones have `T = 0`.
        softmaxes: `[T, B, 2, C]`, the softmaxes of both master gates, before the cumulative sums.
        activations: `[T, B, 4, H]`, candidate, input, forget and output gate after their nonlinearities.
    """

    outputs: torch.Tensor
    last_cell: torch.Tensor
    distances: torch.Tensor
    cells: torch.Tensor
    softmaxes: torch.Tensor
    activations: torch.Tensor

    @classmethod
    def empty(cls, inputs: Inputs, options: Options) -> "Trace":
        (length, batch_size, _), (_, num_chunks, chunk_size) = inputs.input_gates.shape, inputs.cell.shape
        saved_length, size = length if options.save_for_backward else 0, num_chunks * chunk_size
        return cls(
            inputs.input_gates.new_empty(length, batch_size, size),
            inputs.cell.new_empty(inputs.cell.shape),
            inputs.cell.new_empty(length, batch_size, 2),
            inputs.cell.new_empty(saved_length, batch_size, size),
            inputs.cell.new_empty(saved_length, batch_size, 2, num_chunks),
            inputs.cell.new_empty(saved_length, batch_size, 4, size),
        )


class Gradients(NamedTuple):
    """Gradients of inputs from the backward pass through the steps; that of the weight is one product afterwards."""

    input_gates: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor

    @classmethod
    def empty(cls, trace: Trace, inputs: Inputs) -> "Gradients":
        num_gates, size = inputs.recurrent_weight.shape
        return cls(
            trace.outputs.new_empty(*trace.outputs.shape[:2], num_gates),
            trace.last_cell.new_empty(len(trace.last_cell), size),
            trace.last_cell.new_empty(trace.last_cell.shape),
        )
