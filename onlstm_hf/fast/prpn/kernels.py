"""Triton kernels of the reading network's recurrence, and the steps that launch them, forward and backward.

Importing this module fails without Triton. One program computes one row of the batch. All tensors are those of
`contract.py`, contiguous and in float32; only the weights and `Work` of products are in the product's dtype.
"""

import torch
import triton
import triton.language as tl

from ..recurrence.triton_math import split_gates, stack_gates, tanh

# Units per block in the attention's loops over all units.
ATTENTION_BLOCK = 256
# Added to the attention's denominator, the sum of its gated terms.
ATTENTION_EPSILON = tl.constexpr(1e-8)
# Added to the standard deviation in layer normalisation.
DEVIATION_EPSILON = tl.constexpr(1e-6)


def forward_steps(inputs, trace, work) -> None:
    """Fills the trace, whose tape starts with the memories.

    The input's part of the keys and the key's map are divided by `sqrt(H)`; the `newest` of `work` is that of the
    first step.
    """
    batch_size, length, num_slots, size, slots, row, block, num_warps = _sizes(inputs)
    for step in range(length):
        torch.mm(work.newest, inputs.key.t(), out=work.key)
        _attention_kernel[(batch_size,)](
            inputs.input_keys, work.key, inputs.key_keep, inputs.gates, trace.tape, trace.keys, trace.exponentials,
            trace.attentions, trace.summaries, work.summary, step, length, num_slots, size, slots, block, num_warps=4,
        )  # fmt: skip
        torch.mm(work.summary, inputs.recurrent.t(), out=work.recurrent)
        _cell_kernel[(batch_size,)](
            inputs.input_gates, work.recurrent, inputs.recurrent_bias, inputs.gates_gain, inputs.gates_bias,
            inputs.cell_gain, inputs.cell_bias, inputs.newest_keep, trace.tape, trace.summaries,
            trace.normalized_gates, trace.activations, trace.normalized_cells, trace.tanh_cells,
            trace.gates_deviations, trace.cells_deviations, work.newest, step, length, num_slots, size, row,
            num_warps=num_warps,
        )  # fmt: skip


def backward_steps(inputs, trace, grad_trace, gradients, work) -> None:
    """Fills the gradients, except that of the memories, from inputs and trace as after `forward_steps`.

    Only the tape of `grad_trace` is read. The `newest` of `work` ends as the gradient of the memory before the first
    step, from its key.
    """
    batch_size, length, num_slots, size, slots, row, block, num_warps = _sizes(inputs)
    for step in reversed(range(length)):
        _cell_backward_kernel[(batch_size,)](
            inputs.gates_gain, inputs.cell_gain, inputs.newest_keep, trace.attentions, trace.keys, trace.summaries,
            trace.normalized_gates, trace.activations, trace.normalized_cells, trace.tanh_cells,
            trace.gates_deviations, trace.cells_deviations, grad_trace.tape, gradients.scores, gradients.summaries,
            gradients.input_gates, gradients.recurrent, gradients.normalized_cells, work.newest, work.recurrent, step,
            length, num_slots, size, row, num_warps=num_warps,
        )  # fmt: skip
        torch.mm(work.recurrent, inputs.recurrent, out=work.summary)
        _attention_backward_kernel[(batch_size,)](
            work.summary, inputs.key_keep, inputs.gates, trace.tape, trace.exponentials, trace.attentions,
            gradients.scores, gradients.gates, gradients.input_keys, gradients.summaries, work.key, step, length,
            num_slots, size, slots, block, num_warps=4,
        )  # fmt: skip
        torch.mm(work.key, inputs.key, out=work.newest)


def _sizes(inputs) -> tuple[int, ...]:
    """Returns `B`, `T`, `S`, `H`, the powers of 2 that hold `S`, `H` and a block of units, and the number of warps."""
    (batch_size, length, num_slots), size = inputs.gates.shape, len(inputs.key)
    slots, row = triton.next_power_of_2(num_slots), triton.next_power_of_2(size)
    num_warps = min(16, max(4, row // 128))  # of a program that holds a row of units in its registers
    return batch_size, length, num_slots, size, slots, row, min(ATTENTION_BLOCK, row), num_warps


@triton.jit(do_not_specialize=["step", "length"])
def _attention_kernel(
    scaled_keys, product, key_keep, gates, tape, keys, exponentials, attentions, summaries, operand,
    step, length, num_slots, size, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = row * length + step
    slot = tl.arange(0, SLOTS)
    is_slot = slot < num_slots
    window = tape + (row * (num_slots + length) + step) * 2 * size
    scores = tl.zeros((SLOTS,), tl.float32)
    for start in range(0, size, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        is_unit = unit < size
        key = tl.load(scaled_keys + at * size + unit, mask=is_unit, other=0)
        key += tl.load(product + row * size + unit, mask=is_unit, other=0).to(tl.float32)
        if key_keep is not None:
            key *= tl.load(key_keep + at * size + unit, mask=is_unit, other=0)
        tl.store(keys + at * size + unit, key, mask=is_unit)
        both = is_slot[:, None] & is_unit[None, :]
        hidden = tl.load(window + slot[:, None] * 2 * size + unit[None, :], mask=both, other=0)
        scores += tl.sum(hidden * key[None, :], axis=1)
    scores = tl.where(is_slot, scores, float("-inf"))
    terms = tl.exp(scores - tl.max(scores, axis=0))
    gated = terms * tl.load(gates + at * num_slots + slot, mask=is_slot, other=0)
    attention = gated / (tl.sum(gated, axis=0) + ATTENTION_EPSILON)
    tl.store(exponentials + at * num_slots + slot, terms, mask=is_slot)
    tl.store(attentions + at * num_slots + slot, attention, mask=is_slot)
    for start in range(0, size, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        is_unit = unit < size
        both = is_slot[:, None] & is_unit[None, :]
        place = window + slot[:, None] * 2 * size + unit[None, :]
        hidden = tl.sum(tl.load(place, mask=both, other=0) * attention[:, None], axis=0)
        cell = tl.sum(tl.load(place + size, mask=both, other=0) * attention[:, None], axis=0)
        tl.store(summaries + at * 2 * size + unit, hidden, mask=is_unit)
        tl.store(summaries + at * 2 * size + size + unit, cell, mask=is_unit)
        tl.store(operand + row * size + unit, hidden.to(operand.dtype.element_ty), mask=is_unit)


@triton.jit
def _rescaling(inverse, count):
    """Returns the factor from division by the biased standard deviation to division by the unbiased one + epsilon."""
    return 1 / (tl.sqrt(count / (count - 1.0)) + DEVIATION_EPSILON * inverse)


@triton.jit
def _normalize(values, exists, count):
    """Returns the normalised values, and the inverse of their biased standard deviation.

    The inverse is finite even if all values are equal.
    """
    centred = tl.where(exists, values - tl.sum(values) / count, 0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred) / count + 1e-24)
    return centred * (inverse * _rescaling(inverse, count)), inverse


@triton.jit
def _normalize_backward(gradient, normalized, inverse, count):
    """Returns the gradient of a normalisation's input from that of its result."""
    rescaling = _rescaling(inverse, count)
    own_part = tl.sum(gradient * normalized) / (rescaling * tl.sqrt(count * (count - 1.0)))
    return (gradient - tl.sum(gradient) / count - normalized * own_part) * (inverse * rescaling)


@triton.jit(do_not_specialize=["step", "length"])
def _cell_kernel(
    input_gates, product, bias, gates_gain, gates_bias, cell_gain, cell_bias, newest_keep,
    tape, summaries, normalized_gates, activations, normalized_cells, tanh_cells, gates_deviations, cells_deviations,
    operand, step, length, num_slots, size, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = row * length + step
    unit = tl.arange(0, BLOCK)
    is_unit = unit < size
    gate = tl.arange(0, 4)[:, None]
    columns = gate * size + unit[None, :]
    exists = (gate < 4) & is_unit[None, :]

    gates = tl.load(product + row * 4 * size + columns, mask=exists, other=0).to(tl.float32)
    gates += tl.load(bias + columns, mask=exists, other=0)
    normalized, inverse = _normalize(gates, exists, 4.0 * size)
    tl.store(gates_deviations + at, inverse)
    tl.store(normalized_gates + at * 4 * size + columns, normalized, mask=exists)
    gates = normalized * tl.load(gates_gain + columns, mask=exists, other=0)
    gates += tl.load(input_gates + at * 4 * size + columns, mask=exists, other=0)
    gates += tl.load(gates_bias + columns, mask=exists, other=0)
    gates = tl.where(gate == 2, tanh(gates), tl.sigmoid(gates))
    tl.store(activations + at * 4 * size + columns, gates, mask=exists)
    input_gate, forget_gate, candidate, output_gate = split_gates(gates, gate)

    cell = tl.load(summaries + at * 2 * size + size + unit, mask=is_unit, other=0)
    cell = tl.where(is_unit, forget_gate * cell + input_gate * candidate, 0)
    normalized, inverse = _normalize(cell, is_unit, 1.0 * size)
    tl.store(cells_deviations + at, inverse)
    tl.store(normalized_cells + at * size + unit, normalized, mask=is_unit)
    tanh_cell = normalized * tl.load(cell_gain + unit, mask=is_unit, other=0)
    tanh_cell = tanh(tanh_cell + tl.load(cell_bias + unit, mask=is_unit, other=0))
    tl.store(tanh_cells + at * size + unit, tanh_cell, mask=is_unit)
    hidden = output_gate * tanh_cell
    memory = tape + (row * (num_slots + length) + num_slots + step) * 2 * size + unit
    tl.store(memory, hidden, mask=is_unit)
    tl.store(memory + size, cell, mask=is_unit)
    if newest_keep is not None:
        # The mask of the next step; after the last step there is none.
        hidden *= tl.load(newest_keep + (at + 1) * size + unit, mask=is_unit & (step + 1 < length), other=0)
    tl.store(operand + row * size + unit, hidden.to(operand.dtype.element_ty), mask=is_unit)


@triton.jit(do_not_specialize=["step", "length"])
def _cell_backward_kernel(
    gates_gain, cell_gain, newest_keep, attentions, keys, summaries, normalized_gates, activations, normalized_cells,
    tanh_cells, gates_deviations, cells_deviations, grad_tape, grad_scores, grad_summaries, grad_activations,
    grad_recurrent, grad_normalized_cells, product, operand, step, length, num_slots, size, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = row * length + step
    unit = tl.arange(0, BLOCK)
    is_unit = unit < size

    memory = grad_tape + (row * (num_slots + length) + num_slots + step) * 2 * size + unit
    grad_hidden = tl.load(memory, mask=is_unit, other=0)
    grad_cell_of_memory = tl.load(memory + size, mask=is_unit, other=0)
    has_next = step + 1 < length
    newest = tl.load(product + row * size + unit, mask=is_unit & has_next, other=0).to(tl.float32)
    if newest_keep is not None:
        newest *= tl.load(newest_keep + (at + 1) * size + unit, mask=is_unit & has_next, other=0)
    grad_hidden += newest
    # Later steps see this step's memory in slot S - 1, S - 2, ..., 0; slot 0 is the oldest.
    for later in range(1, num_slots + 1):
        is_step = step + later < length
        other = at + later
        slot = other * num_slots + num_slots - later
        by_attention = tl.load(attentions + slot, mask=is_step, other=0)
        by_score = tl.load(grad_scores + slot, mask=is_step, other=0)
        is_read = is_unit & is_step
        grad_hidden += by_attention * tl.load(grad_summaries + other * 2 * size + unit, mask=is_read, other=0)
        grad_hidden += by_score * tl.load(keys + other * size + unit, mask=is_read, other=0)
        grad_cell_of_memory += by_attention * tl.load(
            grad_summaries + other * 2 * size + size + unit, mask=is_read, other=0
        )

    gate = tl.arange(0, 4)[:, None]
    columns = gate * size + unit[None, :]
    exists = (gate < 4) & is_unit[None, :]
    gates = tl.load(activations + at * 4 * size + columns, mask=exists, other=0)
    input_gate, forget_gate, candidate, output_gate = split_gates(gates, gate)
    tanh_cell = tl.load(tanh_cells + at * size + unit, mask=is_unit, other=0)
    grad_normalized = grad_hidden * output_gate * (1 - tanh_cell * tanh_cell)
    tl.store(grad_normalized_cells + at * size + unit, grad_normalized, mask=is_unit)
    weighted = grad_normalized * tl.load(cell_gain + unit, mask=is_unit, other=0)
    normalized = tl.load(normalized_cells + at * size + unit, mask=is_unit, other=0)
    inverse = tl.load(cells_deviations + at)
    grad_cell = _normalize_backward(weighted, normalized, inverse, 1.0 * size)
    grad_cell = tl.where(is_unit, grad_cell_of_memory + grad_cell, 0)
    tl.store(grad_summaries + at * 2 * size + size + unit, forget_gate * grad_cell, mask=is_unit)

    old_cell = tl.load(summaries + at * 2 * size + size + unit, mask=is_unit, other=0)
    grad_gates = stack_gates(
        grad_cell * candidate, grad_cell * old_cell, grad_cell * input_gate, grad_hidden * tanh_cell, gate
    )
    grad_gates *= tl.where(gate == 2, 1 - gates * gates, gates * (1 - gates))
    tl.store(grad_activations + at * 4 * size + columns, grad_gates, mask=exists)

    weighted = grad_gates * tl.load(gates_gain + columns, mask=exists, other=0)
    normalized = tl.load(normalized_gates + at * 4 * size + columns, mask=exists, other=0)
    inverse = tl.load(gates_deviations + at)
    grad_gates = _normalize_backward(weighted, normalized, inverse, 4.0 * size)
    tl.store(grad_recurrent + at * 4 * size + columns, grad_gates, mask=exists)
    tl.store(operand + row * 4 * size + columns, grad_gates.to(operand.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["step", "length"])
def _attention_backward_kernel(
    product, key_keep, gates, tape, exponentials, attentions, grad_scores, grad_gates, grad_keys, grad_summaries,
    operand, step, length, num_slots, size, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = row * length + step
    slot = tl.arange(0, SLOTS)
    is_slot = slot < num_slots
    window = tape + (row * (num_slots + length) + step) * 2 * size
    grad_attention = tl.zeros((SLOTS,), tl.float32)
    for start in range(0, size, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        is_unit = unit < size
        grad_hidden = tl.load(product + row * size + unit, mask=is_unit, other=0).to(tl.float32)
        tl.store(grad_summaries + at * 2 * size + unit, grad_hidden, mask=is_unit)
        grad_cell = tl.load(grad_summaries + at * 2 * size + size + unit, mask=is_unit, other=0)
        both = is_slot[:, None] & is_unit[None, :]
        place = window + slot[:, None] * 2 * size + unit[None, :]
        grad_attention += tl.sum(tl.load(place, mask=both, other=0) * grad_hidden[None, :], axis=1)
        grad_attention += tl.sum(tl.load(place + size, mask=both, other=0) * grad_cell[None, :], axis=1)
    slots = at * num_slots + slot
    attention = tl.load(attentions + slots, mask=is_slot, other=0)
    terms = tl.load(exponentials + slots, mask=is_slot, other=0)
    gate = tl.load(gates + slots, mask=is_slot, other=0)
    gated_sum = tl.sum(terms * gate, axis=0) + ATTENTION_EPSILON
    grad_gated = (grad_attention - tl.sum(grad_attention * attention, axis=0)) / gated_sum * terms
    tl.store(grad_gates + slots, grad_gated, mask=is_slot)
    # The terms were divided by the largest one, so the gradient also flows through it.
    is_largest = tl.where(is_slot & (terms == 1), 1.0, 0.0)
    scores = grad_gated * gate
    scores -= tl.sum(scores, axis=0) * is_largest / tl.sum(is_largest, axis=0)
    scores = tl.where(is_slot, scores, 0)
    tl.store(grad_scores + slots, scores, mask=is_slot)
    for start in range(0, size, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        is_unit = unit < size
        both = is_slot[:, None] & is_unit[None, :]
        hidden = tl.load(window + slot[:, None] * 2 * size + unit[None, :], mask=both, other=0)
        grad_key = tl.sum(hidden * scores[:, None], axis=0)
        if key_keep is not None:
            grad_key *= tl.load(key_keep + at * size + unit, mask=is_unit, other=0)
        tl.store(grad_keys + at * size + unit, grad_key, mask=is_unit)
        tl.store(operand + row * size + unit, grad_key.to(operand.dtype.element_ty), mask=is_unit)
