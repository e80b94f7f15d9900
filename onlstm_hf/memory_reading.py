"""The recurrence of the PRPN's reading network: an LSTM whose past is a tape of memories that it attends to.

Shen, Lin, Huang & Courville (ICLR 2018), section 4.2; the cell is the LSTM of the Long Short-Term Memory-Network
(Cheng, Dong & Lapata 2016) with layer normalisation. `read_sequence` is the one entrance. Behind it stand the readable
reference, which is the definition, and a fused path with a hand-derived backward pass, which is tested against it.

With `B` rows, `T` steps, `S` memory slots and `H` units, a tape `[B, S + T, H]` begins with the `S` memories before
the first step and has one more for each step, oldest first: step `t` sees the window `[:, t : t + S]`. The `4 * H`
columns of the gates are, in this order: input gate, forget gate, cell candidate, output gate.
"""

import math
import re
from typing import NamedTuple

import torch
from torch.nn import functional as F

from .deviation_norm import EPSILON, gradient_factors, normalize, normalize_backward
from .linear import matmul, repeated_linear

IMPLEMENTATIONS = ("auto", "reference", "fused")
ATTENTION_EPSILON = 1e-8
sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
STEPS_PER_BLOCK = 64
# Operators are global: a second copy of this file, which came with a checkpoint, must not replace those of the first.
_OPERATORS = re.sub(r"\W", "_", __name__)


class ReadingWeights(NamedTuple):
    """What one layer of the reading network learns, without its maps of the layer's input.

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


def attend(scores: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Structured attention: a softmax over the slots whose terms are weighted by the gates.

    Args:
        scores: `[..., S]`, key times memory.
        gates: `[..., S]`, in [0, 1], how far each slot is open.
    """
    gated = _exponentials(scores) * gates
    return gated / (gated.sum(dim=-1, keepdim=True) + ATTENTION_EPSILON)


def _exponentials(scores: torch.Tensor) -> torch.Tensor:
    """The terms of the softmax, relative to the largest one. (With the epsilon below them that one counts: where the
    gates are all but closed, the gradient goes through it as well.)"""
    return (scores - scores.amax(dim=-1, keepdim=True)).exp()


def attend_to_windows(
    keys: torch.Tensor, tape: torch.Tensor, gates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of every step to the memories of its window, for steps whose keys do not wait for each other.

    Args:
        keys: `[B, T, H]`.
        tape: `[B, S + T, H]` (the last memory is not looked at), or one shorter.
        gates: `[B, T, S]`, oldest memory first.

    Returns:
        The summaries `[B, T, H]`, and the attentions `[B, T, S]`.
    """
    num_slots, summaries, attentions = gates.shape[-1], [], []
    slots = torch.arange(num_slots, device=keys.device)
    # Scores of all pairs in a block of steps, of which a band is used: faster than cutting windows out of the tape.
    for start in range(0, keys.shape[1], STEPS_PER_BLOCK):
        block_keys, block_gates = keys[:, start : start + STEPS_PER_BLOCK], gates[:, start : start + STEPS_PER_BLOCK]
        length = block_keys.shape[1]
        memories = tape[:, start : start + length + num_slots - 1]
        band = slots + torch.arange(length, device=keys.device).unsqueeze(-1)
        band = band.expand(keys.shape[0], -1, -1)
        scores = torch.bmm(block_keys, memories.transpose(1, 2)).gather(2, band) / math.sqrt(keys.shape[-1])
        attention = attend(scores.to(gates.dtype), block_gates)
        weights = attention.new_zeros(*attention.shape[:2], memories.shape[1]).scatter(2, band, attention)
        summaries.append(torch.bmm(weights, memories))
        attentions.append(attention)
    return torch.cat(summaries, dim=1), torch.cat(attentions, dim=1)


def read_step(
    input_gates: torch.Tensor, summary_hidden: torch.Tensor, summary_cell: torch.Tensor, weights: ReadingWeights
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of the LSTM from the summaries of its memories: the new hidden and cell state.

    Args:
        input_gates: `[B, 4 * H]`, the normalised map of the layer's input.
        summary_hidden: `[B, H]`, the hidden states of the memories, weighted by the attention.
        summary_cell: `[B, H]`, their cell states, likewise.
        weights: the layer's.
    """
    recurrent_gates = F.linear(summary_hidden, weights.recurrent, weights.recurrent_bias).to(input_gates.dtype)
    gates = input_gates + _layer_norm(recurrent_gates, weights.gates_gain, weights.gates_bias)
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
    cell = forget_gate.sigmoid() * summary_cell + input_gate.sigmoid() * candidate.tanh()
    hidden = output_gate.sigmoid() * _layer_norm(cell, weights.cell_gain, weights.cell_bias).tanh()
    return hidden, cell


def _layer_norm(inputs: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    deviation = inputs.std(dim=-1, keepdim=True) + EPSILON
    return gain * (inputs - inputs.mean(dim=-1, keepdim=True)) / deviation + bias


class ReadingOutput(NamedTuple):
    """What the recurrence of one layer returns.

    Attributes:
        hidden_tape: `[B, S + T, H]`, the given hidden states and those of every step, oldest first.
        cell_tape: the same for the cell states.
        attentions: `[B, T, S]`, how much each step takes of each memory of its window. Not differentiable.
    """

    hidden_tape: torch.Tensor
    cell_tape: torch.Tensor
    attentions: torch.Tensor


def read_sequence(
    input_gates: torch.Tensor,
    input_keys: torch.Tensor,
    weights: ReadingWeights,
    gates: torch.Tensor,
    hidden_memories: torch.Tensor,
    cell_memories: torch.Tensor,
    newest_keep: torch.Tensor | None = None,
    key_keep: torch.Tensor | None = None,
    summary_keep: torch.Tensor | None = None,
    implementation: str = "auto",
) -> ReadingOutput:
    """Runs one layer of the reading network over a sequence.

    All is computed in float32 (float64 for float64 input), whatever the dtype of the weights; under bfloat16 autocast
    the two products with weights are in bfloat16. The fused path cannot be differentiated twice; the reference can.

    Args:
        input_gates: `[B, T, 4 * H]`, the normalised map of the layer's input to the gates.
        input_keys: `[B, T, H]`, the map of the layer's input to the key of the attention, with its bias.
        weights: the maps of the layer's past.
        gates: `[B, T, S]`, in [0, 1], how far each memory of a step's window is open, oldest first.
        hidden_memories: `[B, S, H]`, the hidden states before the first step, oldest first.
        cell_memories: `[B, S, H]`, the cell states before the first step.
        newest_keep: optional `[B, T, H]`, dropout mask of the newest hidden state where the key is made of it.
        key_keep: optional `[B, T, H]`, dropout mask of the key.
        summary_keep: optional `[H]`, dropout mask of the summarised hidden state, the same at every step and in every
            row.
        implementation: `"reference"`, `"fused"` or `"auto"` (the fastest one that fits).

    Raises:
        ValueError: if the implementation is unknown.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, not {implementation!r}")
    dtype = torch.promote_types(input_gates.dtype, torch.float32)
    input_gates, input_keys, gates, hidden_memories, cell_memories = (
        tensor.to(dtype) for tensor in (input_gates, input_keys, gates, hidden_memories, cell_memories)
    )
    weights = ReadingWeights(*(weight.to(dtype) for weight in weights))
    run = _reference if implementation == "reference" else _fused
    masks = (newest_keep, key_keep, summary_keep)
    return ReadingOutput(*run(input_gates, input_keys, weights, gates, hidden_memories, cell_memories, *masks))


def _reference(
    input_gates, input_keys, weights, gates, hidden_memories, cell_memories, newest_keep, key_keep, summary_keep
):
    """The definition: one step after the other, differentiated by autograd."""
    hiddens, cells = list(hidden_memories.unbind(1)), list(cell_memories.unbind(1))
    num_slots, attentions = gates.shape[-1], []
    for step in range(input_gates.shape[1]):
        newest = hiddens[-1] if newest_keep is None else hiddens[-1] * newest_keep[:, step]
        key = input_keys[:, step] + F.linear(newest, weights.key).to(input_keys.dtype)
        if key_keep is not None:
            key = key * key_keep[:, step]
        hidden_window = torch.stack(hiddens[-num_slots:], dim=1)
        cell_window = torch.stack(cells[-num_slots:], dim=1)
        scores = (hidden_window * key.unsqueeze(1)).sum(dim=-1) / math.sqrt(key.shape[-1])
        attention = attend(scores, gates[:, step])
        summary_hidden = (attention.unsqueeze(-1) * hidden_window).sum(dim=1)
        summary_cell = (attention.unsqueeze(-1) * cell_window).sum(dim=1)
        if summary_keep is not None:
            summary_hidden = summary_hidden * summary_keep
        hidden, cell = read_step(input_gates[:, step], summary_hidden, summary_cell, weights)
        hiddens.append(hidden)
        cells.append(cell)
        attentions.append(attention)
    return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1), torch.stack(attentions, dim=1).detach()


def _fused(
    input_gates, input_keys, weights, gates, hidden_memories, cell_memories, newest_keep, key_keep, summary_keep
):
    """One opaque operator for the whole sequence: no graph over time, a hand-derived backward pass."""
    device_type = input_gates.device.type
    in_bfloat16 = torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) == torch.bfloat16
    with torch.autocast(device_type, enabled=False):
        tape, attentions, *_ = _fused_forward(
            input_gates,
            input_keys,
            *weights,
            gates,
            torch.stack([hidden_memories, cell_memories], dim=2),
            newest_keep,
            key_keep,
            summary_keep,
            in_bfloat16,
        )
    return *tape.unbind(2), attentions.detach()


@torch.library.custom_op(f"{_OPERATORS}::read_sequence_forward", mutates_args=())
def _fused_forward(
    input_gates: torch.Tensor,
    input_keys: torch.Tensor,
    key_weight: torch.Tensor,
    recurrent_weight: torch.Tensor,
    recurrent_bias: torch.Tensor,
    gates_gain: torch.Tensor,
    gates_bias: torch.Tensor,
    cell_gain: torch.Tensor,
    cell_bias: torch.Tensor,
    gates: torch.Tensor,
    memories: torch.Tensor,
    newest_keep: torch.Tensor | None,
    key_keep: torch.Tensor | None,
    summary_keep: torch.Tensor | None,
    in_bfloat16: bool,
) -> list[torch.Tensor]:
    """Returns the tape `[B, S + T, 2, H]` (hidden and cell states), the attentions `[B, T, S]`, and what the backward
    pass needs besides: the terms of the softmaxes `[B, T, S]`, the keys divided by `sqrt(H)` `[B, T, H]`, the
    summaries `[B, T, 2, H]`, the normalised recurrent gates `[B, T, 4 * H]`, the activated gates `[B, T, 4, H]`, the
    normalised cell and its tanh `[B, T, H]`, and the inverse deviations of the two normalisations `[B, T, 1]`."""
    batch_size, length, num_slots = gates.shape
    size = key_weight.shape[0]
    buffers = _buffers(input_gates, gates, size)
    tape, attentions, exponentials, keys, summaries, normalized_gates, activations, normalized_cells, tanh_cells = (
        buffers[:9]
    )
    gates_deviations, cells_deviations = buffers[9:]
    tape[:, :num_slots] = memories
    flat_tape = tape.flatten(2)
    # Scores are divided by sqrt(H): the keys are, as a whole.
    scaled_keys = input_keys / math.sqrt(size)
    kept_weight, kept_units = _without_dropped_units(recurrent_weight, summary_keep)
    key_product, recurrent_product = (
        _product_with(weight, batch_size, in_bfloat16) for weight in (key_weight / math.sqrt(size), kept_weight)
    )

    for step in range(length):
        newest = tape[:, num_slots + step - 1, 0]
        if newest_keep is not None:
            newest = newest * newest_keep[:, step]
        key = torch.add(scaled_keys[:, step], key_product(newest), out=keys[:, step])
        if key_keep is not None:
            key.mul_(key_keep[:, step])
        hidden_window = tape[:, step : step + num_slots, 0]
        scores = torch.bmm(key.unsqueeze(1), hidden_window.transpose(1, 2)).squeeze(1)
        exponentials[:, step] = _exponentials(scores)
        gated = exponentials[:, step] * gates[:, step]
        attentions[:, step] = gated.div_(gated.sum(dim=-1, keepdim=True).add_(ATTENTION_EPSILON))
        window = flat_tape[:, step : step + num_slots]
        summary = torch.bmm(attentions[:, step].unsqueeze(1), window).view(batch_size, 2, size)
        summaries[:, step] = summary

        recurrent = recurrent_product(_units(summary[:, 0], kept_units)) + recurrent_bias
        normalized, gates_deviations[:, step] = normalize(recurrent, out=normalized_gates[:, step])
        activated = torch.addcmul(input_gates[:, step], normalized, gates_gain).add_(gates_bias)
        activated = activated.view(batch_size, 4, size)
        torch.tanh(activated[:, 2], out=activations[:, step, 2])
        for gate in (0, 1, 3):
            torch.sigmoid(activated[:, gate], out=activations[:, step, gate])
        input_gate, forget_gate, candidate, output_gate = activations[:, step].unbind(1)
        cell = torch.addcmul(forget_gate * summary[:, 1], input_gate, candidate, out=tape[:, num_slots + step, 1])
        normalized, cells_deviations[:, step] = normalize(cell, out=normalized_cells[:, step])
        tanh_cell = torch.tanh(torch.addcmul(cell_bias, normalized, cell_gain), out=tanh_cells[:, step])
        torch.mul(output_gate, tanh_cell, out=tape[:, num_slots + step, 0])
    return buffers


def _buffers(input_gates: torch.Tensor, gates: torch.Tensor, size: int) -> list[torch.Tensor]:
    batch_size, length, num_slots = gates.shape
    return [
        input_gates.new_empty(batch_size, num_slots + length, 2, size),
        input_gates.new_empty(batch_size, length, num_slots),
        input_gates.new_empty(batch_size, length, num_slots),
        input_gates.new_empty(batch_size, length, size),
        input_gates.new_empty(batch_size, length, 2, size),
        input_gates.new_empty(batch_size, length, 4 * size),
        input_gates.new_empty(batch_size, length, 4, size),
        input_gates.new_empty(batch_size, length, size),
        input_gates.new_empty(batch_size, length, size),
        input_gates.new_empty(batch_size, length, 1),
        input_gates.new_empty(batch_size, length, 1),
    ]


@_fused_forward.register_fake
def _(input_gates, input_keys, key_weight, recurrent_weight, recurrent_bias, gates_gain, gates_bias, cell_gain,
      cell_bias, gates, memories, newest_keep, key_keep, summary_keep, in_bfloat16):  # fmt: skip
    return _buffers(input_gates, gates, key_weight.shape[0])


def _without_dropped_units(
    weight: torch.Tensor, keep: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The map `weight` `[out, in]` of inputs that are multiplied with `keep` `[in]`, and which units remain of them.

    On a CPU the columns of dropped units are left out, and so is their part of every product. Elsewhere all stay
    (`None`), as the host would have to wait for the number of those that remain.
    """
    if keep is None:
        return weight, None
    if keep.device.type != "cpu":
        return weight * keep, None
    units = keep.nonzero().squeeze(-1)
    return weight.index_select(1, units).mul_(keep[units]), units


def _units(tensor: torch.Tensor, units: torch.Tensor | None) -> torch.Tensor:
    return tensor if units is None else tensor.index_select(-1, units)


def _product_with(weight: torch.Tensor, batch_size: int, in_bfloat16: bool):
    """A function that maps `[B, in]` by the weight `[out, in]`, in bfloat16 or in the weight's own precision."""
    if not in_bfloat16:
        return repeated_linear(weight, batch_size)
    half_weight = weight.to(torch.bfloat16).contiguous()
    return lambda matrix: F.linear(matrix.to(torch.bfloat16), half_weight)


@torch.library.custom_op(f"{_OPERATORS}::read_sequence_backward", mutates_args=())
def _fused_backward(
    grad_tape: torch.Tensor,
    tape: torch.Tensor,
    attentions: torch.Tensor,
    exponentials: torch.Tensor,
    keys: torch.Tensor,
    summaries: torch.Tensor,
    normalized_gates: torch.Tensor,
    activations: torch.Tensor,
    normalized_cells: torch.Tensor,
    tanh_cells: torch.Tensor,
    gates_deviations: torch.Tensor,
    cells_deviations: torch.Tensor,
    key_weight: torch.Tensor,
    recurrent_weight: torch.Tensor,
    gates_gain: torch.Tensor,
    cell_gain: torch.Tensor,
    gates: torch.Tensor,
    newest_keep: torch.Tensor | None,
    key_keep: torch.Tensor | None,
    summary_keep: torch.Tensor | None,
    in_bfloat16: bool,
    memories_need_gradient: bool,
) -> list[torch.Tensor]:
    """Gradients of the first eleven arguments of `_fused_forward`, in their order.

    A memory is read by the `S` steps after it. Its gradient is gathered when the loop backwards in time reaches it,
    from what those steps took and gave back: a window that slides over the future, as that of the forward pass slides
    over the past. The gradient of each weight is one product at the end.
    """
    batch_size, length, num_slots = gates.shape
    size = key_weight.shape[0]
    kept_weight, kept_units = _without_dropped_units(recurrent_weight, summary_keep)
    key_product, recurrent_product = (
        _product_with(weight.t(), batch_size, in_bfloat16) for weight in (key_weight / math.sqrt(size), kept_weight)
    )

    gated_sums = (exponentials * gates).sum(dim=-1, keepdim=True) + ATTENTION_EPSILON
    gates_factors = [factor.unbind(1) for factor in gradient_factors(gates_deviations, 4 * size)]
    cells_factors = [factor.unbind(1) for factor in gradient_factors(cells_deviations, size)]
    largest = (exponentials == 1).to(gates.dtype)
    largest = largest / largest.sum(dim=-1, keepdim=True)

    grad_input_gates = torch.empty_like(activations)
    grad_recurrent = torch.empty_like(normalized_gates)
    grad_keys = torch.empty_like(keys)
    grad_gates = torch.empty_like(gates)
    # Step t stands at S + t; the zeros at both ends are steps that do not exist. Slots are newest first here, so that
    # the steps after a memory see it in slot 0, 1, 2, ...: on a diagonal.
    num_places = num_slots + length + num_slots
    taken = tape.new_zeros(2, batch_size, num_places, num_slots)
    grad_summaries = tape.new_zeros(batch_size, num_places, 2 * size)
    placed_keys = F.pad(keys, (0, 0, num_slots, num_slots))

    def grad_memory(place: int) -> torch.Tensor:
        """The gradient `[B, 2 * H]` of the memory at a place of the tape, but for its part in the next step's key."""
        future = slice(place + 1, place + 1 + num_slots)
        by_attention, by_score = taken[:, :, future].diagonal(dim1=-2, dim2=-1).contiguous().unsqueeze(-2)
        gradient = torch.bmm(by_attention, grad_summaries[:, future]).squeeze(1)
        gradient[:, :size] += torch.bmm(by_score, placed_keys[:, future]).squeeze(1)
        return gradient.add_(grad_tape[:, place].flatten(1))

    grad_newest = tape.new_zeros(batch_size, size)
    grad_gates_gain, grad_cell_gain, grad_cell_bias = (
        torch.zeros_like(gain) for gain in (gates_gain, cell_gain, cell_gain)
    )
    for step in reversed(range(length)):
        place = num_slots + step
        grad_state = grad_memory(place)
        grad_hidden = grad_state[:, :size].add_(grad_newest)
        input_gate, forget_gate, candidate, output_gate = activations[:, step].unbind(1)
        tanh_cell = tanh_cells[:, step]
        grad_normalized_cell = tanh_backward(grad_hidden * output_gate, tanh_cell)
        grad_cell, product = normalize_backward(
            grad_normalized_cell, normalized_cells[:, step], cell_gain, *(factor[step] for factor in cells_factors)
        )
        grad_cell.add_(grad_state[:, size:])
        grad_cell_gain += product.sum(0)
        grad_cell_bias += grad_normalized_cell.sum(0)

        grad_activated = grad_input_gates[:, step]
        grad_activated[:, 0] = sigmoid_backward(grad_cell * candidate, input_gate)
        grad_activated[:, 1] = sigmoid_backward(grad_cell * summaries[:, step, 1], forget_gate)
        grad_activated[:, 2] = tanh_backward(grad_cell * input_gate, candidate)
        grad_activated[:, 3] = sigmoid_backward(grad_hidden * tanh_cell, output_gate)
        grad_product, product = normalize_backward(
            grad_activated.flatten(1),
            normalized_gates[:, step],
            gates_gain,
            *(factor[step] for factor in gates_factors),
            out=grad_recurrent[:, step],
        )
        grad_gates_gain += product.sum(0)
        grad_summary = grad_summaries[:, place]
        grad_kept = recurrent_product(grad_product).to(grad_summary.dtype)
        if kept_units is None:
            grad_summary[:, :size] = grad_kept
        else:
            grad_summary.index_copy_(1, kept_units, grad_kept)
        torch.mul(forget_gate, grad_cell, out=grad_summary[:, size:])

        window = tape[:, step : step + num_slots]
        grad_attention = torch.bmm(grad_summary.unsqueeze(1), window.flatten(2).transpose(1, 2)).squeeze(1)
        attention = attentions[:, step]
        grad_gated = grad_attention - (grad_attention * attention).sum(dim=-1, keepdim=True)
        grad_gated.div_(gated_sums[:, step]).mul_(exponentials[:, step])
        grad_gates[:, step] = grad_gated
        grad_scores = grad_gated.mul_(gates[:, step])
        grad_scores.addcmul_(grad_scores.sum(dim=-1, keepdim=True), largest[:, step], value=-1)
        grad_key = torch.bmm(grad_scores.unsqueeze(1), window[:, :, 0]).squeeze(1)
        if key_keep is not None:
            grad_key.mul_(key_keep[:, step])
        grad_keys[:, step] = grad_key
        grad_newest = key_product(grad_key)
        if newest_keep is not None:
            grad_newest = grad_newest * newest_keep[:, step]
        taken[0, :, place] = attention.flip(-1)
        taken[1, :, place] = grad_scores.flip(-1)

    grad_memories = torch.zeros_like(tape[:, :num_slots])
    if memories_need_gradient:
        for place in range(num_slots):
            grad_memories[:, place] = grad_memory(place).view(batch_size, 2, size)
        grad_memories[:, -1, 0] += grad_newest

    newest = tape[:, num_slots - 1 : -1, 0]
    if newest_keep is not None:
        newest = newest * newest_keep
    grad_recurrent_weight = _weight_gradient(grad_recurrent, _units(summaries[:, :, 0], kept_units), in_bfloat16)
    if kept_units is not None:
        grad_recurrent_weight = torch.zeros_like(recurrent_weight).index_copy_(1, kept_units, grad_recurrent_weight)
    if summary_keep is not None:
        grad_recurrent_weight.mul_(summary_keep)
    grad_input_gates = grad_input_gates.flatten(2)
    grad_keys.div_(math.sqrt(size))
    return [
        grad_input_gates,
        grad_keys,
        _weight_gradient(grad_keys, newest, in_bfloat16),
        grad_recurrent_weight,
        grad_recurrent.sum(dim=(0, 1)),
        grad_gates_gain,
        grad_input_gates.sum(dim=(0, 1)),
        grad_cell_gain,
        grad_cell_bias,
        grad_gates,
        grad_memories,
    ]


def _weight_gradient(gradient: torch.Tensor, inputs: torch.Tensor, in_bfloat16: bool) -> torch.Tensor:
    gradient, inputs = gradient.flatten(0, 1), inputs.flatten(0, 1)
    if in_bfloat16:
        return (gradient.to(torch.bfloat16).t() @ inputs.to(torch.bfloat16)).to(gradient.dtype)
    return matmul(gradient.t(), inputs)


@_fused_backward.register_fake
def _(grad_tape, tape, attentions, exponentials, keys, summaries, normalized_gates, activations, normalized_cells,
      tanh_cells, gates_deviations, cells_deviations, key_weight, recurrent_weight, gates_gain, cell_gain, gates,
      newest_keep, key_keep, summary_keep, in_bfloat16, memories_need_gradient):  # fmt: skip
    size, num_slots = key_weight.shape[0], gates.shape[-1]
    return [
        torch.empty_like(normalized_gates),
        torch.empty_like(keys),
        torch.empty_like(key_weight),
        torch.empty_like(recurrent_weight),
        gates_gain.new_empty(4 * size),
        torch.empty_like(gates_gain),
        torch.empty_like(gates_gain),
        torch.empty_like(cell_gain),
        torch.empty_like(cell_gain),
        torch.empty_like(gates),
        torch.empty_like(tape[:, :num_slots]),
    ]


def _save_for_backward(ctx, inputs, output):
    _, _, key_weight, recurrent_weight, _, gates_gain, _, cell_gain, _, gates, _, *masks, ctx.in_bfloat16 = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, key_weight, recurrent_weight, gates_gain, cell_gain, gates, *masks)


def _differentiate(ctx, grad_outputs):
    memories_need_gradient = ctx.needs_input_grad[10]
    (grad_tape, *_), (tape, *_) = grad_outputs, ctx.saved_tensors
    if grad_tape is None:
        grad_tape = torch.zeros_like(tape)
    gradients = _fused_backward(grad_tape, *ctx.saved_tensors, ctx.in_bfloat16, memories_need_gradient)
    return *gradients, None, None, None, None


_fused_forward.register_autograd(_differentiate, setup_context=_save_for_backward)
