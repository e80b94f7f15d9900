"""What a fast path of the reading network's recurrence is made of."""

from collections.abc import Callable
from typing import NamedTuple

import torch


class StepWeights(NamedTuple):
    """What one layer of the reading network learns for its steps, without its maps of the layer's input.

    Attributes:
        key: `[H, H]`, map of the newest hidden state to the key of the attention.
        recurrent: `[4 * H, H]`, map of the summarised hidden state to the gates, and its bias `[4 * H]`.
        gates_gain: `[4 * H]`, layer normalisation of that map, and its bias.
        cell_gain: `[H]`, layer normalisation of the cell state, and its bias.
    """

    key: torch.Tensor
    recurrent: torch.Tensor
    recurrent_bias: torch.Tensor
    gates_gain: torch.Tensor
    gates_bias: torch.Tensor
    cell_gain: torch.Tensor
    cell_bias: torch.Tensor


class ReadingMasks(NamedTuple):
    """The dropout masks of one layer, `None` where nothing is dropped.

    Attributes:
        newest: `[B, T, H]`, of the newest hidden state where the key is made of it.
        key: `[B, T, H]`, of the key.
        kept_units: `[K]`, the units of the summarised hidden state that are kept. A path is given the recurrent map
            of these alone, `[4 * H, K]`, which has their factors in it.
    """

    newest: torch.Tensor | None
    key: torch.Tensor | None
    kept_units: torch.Tensor | None


class ReadingTrace(NamedTuple):
    """What the steps leave behind: the result, and what the backward pass needs.

    Attributes:
        tape: `[B, S + T, 2, H]`, hidden and cell states, oldest first.
        attentions: `[B, T, S]`.
        exponentials: `[B, T, S]`, the terms of their softmaxes.
        keys: `[B, T, H]`, divided by `sqrt(H)`.
        summaries: `[B, T, 2, H]`, of hidden and cell states, before dropout.
        normalized_gates: `[B, T, 4 * H]`, the normalised map of the summaries, before gain and bias.
        activations: `[B, T, 4, H]`, the gates after their nonlinearities.
        normalized_cells: `[B, T, H]`, before gain and bias.
        tanh_cells: `[B, T, H]`, after them and the tanh.
        gates_deviations: `[B, T, 1]`, the inverse biased standard deviations behind the normalised gates.
        cells_deviations: `[B, T, 1]`, behind the normalised cells.
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
    def empty(cls, input_gates: torch.Tensor, gates: torch.Tensor) -> "ReadingTrace":
        """To be written to."""
        batch_size, length, num_slots = gates.shape
        size = input_gates.shape[-1] // 4
        slots, units = (num_slots,), (size,)
        by_step = [slots, slots, units, (2, size), (4 * size,), (4, size), units, units, (1,), (1,)]
        return cls(
            input_gates.new_empty(batch_size, num_slots + length, 2, size),
            *(input_gates.new_empty(batch_size, length, *shape) for shape in by_step),
        )


class ReadingGradients(NamedTuple):
    """What the backward pass through the steps returns. (The gradient of each weight is one product after it.)

    Attributes:
        input_gates: `[B, T, 4 * H]`.
        input_keys: `[B, T, H]`.
        recurrent: `[B, T, 4 * H]`, of the map of the summaries, before its normalisation.
        recurrent_bias: `[4 * H]`, the sum of the one before.
        gates_gain: `[4 * H]`.
        gates_bias: `[4 * H]`.
        cell_gain: `[H]`.
        cell_bias: `[H]`.
        gates: `[B, T, S]`.
        memories: `[B, S, 2, H]`, of the memories before the first step; 0 unless it was asked for.
    """

    input_gates: torch.Tensor
    input_keys: torch.Tensor
    recurrent: torch.Tensor
    recurrent_bias: torch.Tensor
    gates_gain: torch.Tensor
    gates_bias: torch.Tensor
    cell_gain: torch.Tensor
    cell_bias: torch.Tensor
    gates: torch.Tensor
    memories: torch.Tensor


class ReadingPath(NamedTuple):
    """One way to run the steps of a layer, with a hand-derived backward pass. Shapes are those of `read_sequence`.

    Attributes:
        forward: `(input_gates, input_keys, weights, gates, masks, in_bfloat16, trace)`, of which it writes to the
            trace, whose tape has the memories before the first step.
        backward: `(grad_tape, trace, weights, gates, masks, in_bfloat16, memories_need_gradient)` to
            `ReadingGradients`; of the weights only the two maps and the two gains are there.
        obstacle: why the path cannot run on a sequence `[B, T, ...]`, or `None` where it can.
        is_worthwhile: whether it should be chosen for one, before the slower ones.
    """

    forward: Callable[..., None]
    backward: Callable[..., ReadingGradients]
    obstacle: Callable[[torch.Tensor], str | None]
    is_worthwhile: Callable[[torch.Tensor], bool]
