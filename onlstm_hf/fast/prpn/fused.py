"""The reading network's recurrence in PyTorch operations without a graph over time, on any device."""

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from ..recurrence.fast_path import FastPath
from .contract import ATTENTION_EPSILON, Gradients, Inputs, Options, Trace
from .deviation_norm import gradient_factors, normalize, normalize_backward


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    input_gates, input_keys, weights, gates, _, masks = inputs
    trace = Trace.begin(inputs)
    batch_size, length, num_slots = gates.shape
    size = input_keys.shape[-1]
    tape, flat_tape = trace.tape, trace.tape.flatten(2)
    # Scores are divided by sqrt(H), for which it is enough to divide the keys of all steps once.
    scaled_keys = input_keys / math.sqrt(size)
    key_product, recurrent_product = (
        _product_with(weight, options) for weight in (weights.key / math.sqrt(size), inputs.masked_recurrent_weight)
    )

    for step in range(length):
        newest = tape[:, num_slots + step - 1, 0]
        if masks.newest is not None:
            newest = newest * masks.newest[:, step]
        key = torch.add(scaled_keys[:, step], key_product(newest), out=trace.keys[:, step])
        if masks.key is not None:
            key.mul_(masks.key[:, step])
        hidden_window = tape[:, step : step + num_slots, 0]
        scores = torch.bmm(key.unsqueeze(1), hidden_window.transpose(1, 2)).squeeze(1)
        exponentials, attentions = trace.exponentials[:, step], trace.attentions[:, step]
        exponentials.copy_((scores - scores.amax(dim=-1, keepdim=True)).exp_())
        gated = exponentials * gates[:, step]
        attentions.copy_(gated.div_(gated.sum(dim=-1, keepdim=True).add_(ATTENTION_EPSILON)))
        window = flat_tape[:, step : step + num_slots]
        summary = torch.bmm(attentions.unsqueeze(1), window).view(batch_size, 2, size)
        trace.summaries[:, step] = summary

        recurrent = recurrent_product(summary[:, 0]) + weights.recurrent_bias
        normalized, trace.gates_deviations[:, step] = normalize(recurrent, out=trace.normalized_gates[:, step])
        activated = torch.addcmul(input_gates[:, step], normalized, weights.gates_gain).add_(weights.gates_bias)
        activated, activations = activated.view(batch_size, 4, size), trace.activations[:, step]
        torch.tanh(activated[:, 2], out=activations[:, 2])
        for gate in (0, 1, 3):
            torch.sigmoid(activated[:, gate], out=activations[:, gate])
        input_gate, forget_gate, candidate, output_gate = activations.unbind(1)
        hidden, cell = tape[:, num_slots + step].unbind(1)
        torch.addcmul(forget_gate * summary[:, 1], input_gate, candidate, out=cell)
        normalized, trace.cells_deviations[:, step] = normalize(cell, out=trace.normalized_cells[:, step])
        normalized = torch.addcmul(weights.cell_bias, normalized, weights.cell_gain)
        torch.mul(output_gate, torch.tanh(normalized, out=trace.tanh_cells[:, step]), out=hidden)
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`.

    A memory is read by the `S` steps after it. Its gradient is gathered when the loop backwards in time reaches it,
    from what those steps took and gave back: a window that slides over the future, as that of the forward pass slides
    over the past.
    """
    sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    weights, gates, masks = inputs.weights, inputs.gates, inputs.masks
    grad_tape = torch.zeros_like(trace.tape) if grad_trace.tape is None else grad_trace.tape
    batch_size, length, num_slots = gates.shape
    tape, exponentials, size = trace.tape, trace.exponentials, trace.keys.shape[-1]
    key_product, recurrent_product = (
        _product_with(weight.t(), options)
        for weight in (weights.key / math.sqrt(size), inputs.masked_recurrent_weight)
    )

    gated_sums = (exponentials * gates).sum(dim=-1, keepdim=True) + ATTENTION_EPSILON
    gates_factors = [factor.unbind(1) for factor in gradient_factors(trace.gates_deviations, 4 * size)]
    cells_factors = [factor.unbind(1) for factor in gradient_factors(trace.cells_deviations, size)]
    largest = (exponentials == 1).to(gates.dtype)
    largest = largest / largest.sum(dim=-1, keepdim=True)

    grad_input_gates = torch.empty_like(trace.activations)
    grad_recurrent = torch.empty_like(trace.normalized_gates)
    grad_keys = torch.empty_like(trace.keys)
    grad_gates = torch.empty_like(gates)
    # Step t stands at the place S + t; the zeros at both ends stand for steps that do not exist. Slots are newest
    # first here: the steps after a memory see it in slot 0, 1, 2, ..., which is a diagonal of these tensors.
    num_places = num_slots + length + num_slots
    taken = tape.new_zeros(2, batch_size, num_places, num_slots)
    grad_summaries = tape.new_zeros(batch_size, num_places, 2 * size)
    placed_keys = F.pad(trace.keys, (0, 0, num_slots, num_slots))

    def grad_memory(place: int) -> torch.Tensor:
        """The gradient `[B, 2 * H]` of the memory at a place of the tape, but for its part in the next step's key."""
        future = slice(place + 1, place + 1 + num_slots)
        by_attention, by_score = taken[:, :, future].diagonal(dim1=-2, dim2=-1).contiguous().unsqueeze(-2)
        gradient = torch.bmm(by_attention, grad_summaries[:, future]).squeeze(1)
        gradient[:, :size] += torch.bmm(by_score, placed_keys[:, future]).squeeze(1)
        return gradient.add_(grad_tape[:, place].flatten(1))

    grad_newest = tape.new_zeros(batch_size, size)
    grad_gates_gain, grad_cell_gain, grad_cell_bias = (
        torch.zeros_like(gain) for gain in (weights.gates_gain, weights.cell_gain, weights.cell_gain)
    )
    for step in reversed(range(length)):
        place = num_slots + step
        grad_state = grad_memory(place)
        grad_hidden = grad_state[:, :size].add_(grad_newest)
        input_gate, forget_gate, candidate, output_gate = trace.activations[:, step].unbind(1)
        tanh_cell, normalized_cell = trace.tanh_cells[:, step], trace.normalized_cells[:, step]
        grad_normalized_cell = tanh_backward(grad_hidden * output_gate, tanh_cell)
        grad_cell, product = normalize_backward(
            grad_normalized_cell, normalized_cell, weights.cell_gain, *(factor[step] for factor in cells_factors)
        )
        grad_cell.add_(grad_state[:, size:])
        grad_cell_gain += product.sum(0)
        grad_cell_bias += grad_normalized_cell.sum(0)

        grad_activated = grad_input_gates[:, step]
        grad_activated[:, 0] = sigmoid_backward(grad_cell * candidate, input_gate)
        grad_activated[:, 1] = sigmoid_backward(grad_cell * trace.summaries[:, step, 1], forget_gate)
        grad_activated[:, 2] = tanh_backward(grad_cell * input_gate, candidate)
        grad_activated[:, 3] = sigmoid_backward(grad_hidden * tanh_cell, output_gate)
        grad_recurrent[:, step], product = normalize_backward(
            grad_activated.flatten(1),
            trace.normalized_gates[:, step],
            weights.gates_gain,
            *(factor[step] for factor in gates_factors),
        )
        grad_gates_gain += product.sum(0)
        grad_summary = grad_summaries[:, place]
        grad_summary[:, :size] = recurrent_product(grad_recurrent[:, step])
        torch.mul(forget_gate, grad_cell, out=grad_summary[:, size:])

        window, attention = tape[:, step : step + num_slots], trace.attentions[:, step]
        grad_attention = torch.bmm(grad_summary.unsqueeze(1), window.flatten(2).transpose(1, 2)).squeeze(1)
        grad_gated = grad_attention - (grad_attention * attention).sum(dim=-1, keepdim=True)
        grad_gated.div_(gated_sums[:, step]).mul_(exponentials[:, step])
        grad_gates[:, step] = grad_gated
        grad_scores = grad_gated.mul_(gates[:, step])
        grad_scores.addcmul_(grad_scores.sum(dim=-1, keepdim=True), largest[:, step], value=-1)
        grad_key = torch.bmm(grad_scores.unsqueeze(1), window[:, :, 0]).squeeze(1)
        if masks.key is not None:
            grad_key.mul_(masks.key[:, step])
        grad_keys[:, step] = grad_key
        grad_newest = key_product(grad_key)
        if masks.newest is not None:
            grad_newest = grad_newest * masks.newest[:, step]
        taken[0, :, place] = attention.flip(-1)
        taken[1, :, place] = grad_scores.flip(-1)

    grad_memories = torch.zeros_like(tape[:, :num_slots])
    if options.memories_need_gradient:
        for place in range(num_slots):
            grad_memories[:, place] = grad_memory(place).view(batch_size, 2, size)
        grad_memories[:, -1, 0] += grad_newest
    grad_input_gates = grad_input_gates.flatten(2)
    return Gradients(
        grad_input_gates,
        grad_keys.div_(math.sqrt(size)),
        grad_recurrent,
        grad_recurrent.sum(dim=(0, 1)),
        grad_gates_gain,
        grad_input_gates.sum(dim=(0, 1)),
        grad_cell_gain,
        grad_cell_bias,
        grad_gates,
        grad_memories,
    )


def _product_with(weight: torch.Tensor, options: Options) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that maps `[B, in]` by the weight `[out, in]`, in bfloat16 or in the weight's own precision."""
    if not options.product_in_bfloat16:
        return lambda matrix: F.linear(matrix, weight)
    half_weight = weight.to(torch.bfloat16).contiguous()
    return lambda matrix: F.linear(matrix.to(torch.bfloat16), half_weight)


PATH = FastPath(forward, backward)
