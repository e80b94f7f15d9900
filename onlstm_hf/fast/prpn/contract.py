"""Arguments and results of the fast paths of the reading network's recurrence (see `FastPath`).

Shapes have `B` rows, `T` steps, `S` memory slots and `H` units, as in `read_sequence`. All tensors are float32.
`csrc/prpn.cpp` has the same fields in the same order.
"""

from typing import NamedTuple

import torch


class Inputs(NamedTuple):
    """Inputs of the recurrence.

    Attributes:
        input_gates: `[B, T, 4 * H]`, the normalised map of the layer's input to the gates.
        input_keys: `[B, T, H]`, the layer input's part of the attention keys.
        key: `[H, H]`, map of the newest hidden state to the attention key.
        recurrent: `[4 * H, H]`, map of the summarised hidden state to the gates, times its dropout mask.
        recurrent_bias: `[4 * H]`, its bias.
        gates_gain, gates_bias: `[4 * H]`, gain and bias of the layer normalisation of that map.
        cell_gain, cell_bias: `[H]`, gain and bias of the layer normalisation of the cell state.
        gates: `[B, T, S]`, in [0, 1], how far each memory of a step's window is open, oldest first.
        memories: `[B, S, 2, H]`, hidden and cell states before the first step, oldest first.
        newest_keep: `[B, T, H]`, dropout mask of the newest hidden state as input of the key's map, or `None`.
        key_keep: `[B, T, H]`, dropout mask of the key, or `None`.
    """

    input_gates: torch.Tensor
    input_keys: torch.Tensor
    key: torch.Tensor
    recurrent: torch.Tensor
    recurrent_bias: torch.Tensor
    gates_gain: torch.Tensor
    gates_bias: torch.Tensor
    cell_gain: torch.Tensor
    cell_bias: torch.Tensor
    gates: torch.Tensor
    memories: torch.Tensor
    newest_keep: torch.Tensor | None
    key_keep: torch.Tensor | None


class Options(NamedTuple):
    """The dtype of products with weights, and whether the memories before the first step need a gradient."""

    product_in_bfloat16: bool
    memories_need_gradient: bool


class Trace(NamedTuple):
    """The two results, and what else the backward pass needs. Only the tape has a gradient.

    Attributes:
        tape: `[B, S + T, 2, H]`, hidden and cell states, oldest first.
        attentions: `[B, T, S]`.
        exponentials: `[B, T, S]`, the terms of the softmaxes.
        keys: `[B, T, H]`, divided by `sqrt(H)`.
        summaries: `[B, T, 2, H]`, of hidden and cell states, before dropout.
        normalized_gates: `[B, T, 4 * H]`, the normalised map of the summaries, before gain and bias.
        activations: `[B, T, 4, H]`, the gates after their nonlinearities.
        normalized_cells: `[B, T, H]`, before gain and bias.
        tanh_cells: `[B, T, H]`, after gain, bias and tanh.
        gates_deviations: `[B, T, 1]`, the inverse biased standard deviations of the gates.
        cells_deviations: `[B, T, 1]`, those of the cells.
    """

    tape: torch.Tensor
    attentions: torch.Tensor
    exponentials: torch.Tensor
    keys: torch.Tensor
    summaries: torch.Tensor
    normalized_gates: torch.Tensor
    activations: torch.Tensor
    normalized_cells: torch.Tensor
    tanh_cells: torch.Tensor
    gates_deviations: torch.Tensor
    cells_deviations: torch.Tensor

    @classmethod
    def empty(cls, inputs: Inputs, options: Options) -> "Trace":
        (batch_size, length, num_slots), size = inputs.gates.shape, len(inputs.key)
        slots, units = (num_slots,), (size,)
        by_step = [slots, slots, units, (2, size), (4 * size,), (4, size), units, units, (1,), (1,)]
        return cls(
            inputs.gates.new_empty(batch_size, num_slots + length, 2, size),
            *(inputs.gates.new_empty(batch_size, length, *shape) for shape in by_step),
        )


class Gradients(NamedTuple):
    """Gradients that the backward pass through the steps returns; those of the weights are computed from them.

    Attributes:
        input_gates: `[B, T, 4 * H]`.
        input_keys: `[B, T, H]`.
        recurrent: `[B, T, 4 * H]`, of the map of the summaries, before its normalisation.
        normalized_cells: `[B, T, H]`, of the normalised cells after gain and bias.
        gates: `[B, T, S]`.
        scores: `[B, T, S]`, of the attention's scores; only used by the steps.
        summaries: `[B, T, 2, H]`; only used by the steps.
        memories: `[B, S, 2, H]`, of the memories before the first step; 0 without `memories_need_gradient`.
    """

    input_gates: torch.Tensor
    input_keys: torch.Tensor
    recurrent: torch.Tensor
    normalized_cells: torch.Tensor
    gates: torch.Tensor
    scores: torch.Tensor
    summaries: torch.Tensor
    memories: torch.Tensor

    @classmethod
    def empty(cls, trace: Trace, inputs: Inputs) -> "Gradients":
        """Returns tensors of the right shapes and dtypes for a path to fill; the memories are 0."""
        gates, cells, slots = trace.normalized_gates, trace.normalized_cells, trace.attentions
        memories = trace.tape.new_zeros(len(trace.tape), slots.shape[-1], *trace.tape.shape[2:])
        return cls(*map(torch.empty_like, (gates, cells, gates, cells, slots, slots, trace.summaries)), memories)
