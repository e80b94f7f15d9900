"""Triton kernels of the ordered-neurons recurrence, and the steps that launch them, forward and backward.

Importing this module fails without Triton. A step finds its sequence's tensors through a table of int64 values on the
device: the first time step of a series of launches, then the address of each tensor or 0. So recorded launches work
for any tensors. Sequences are float32 or bfloat16, everything else is float32.
"""

import torch
import triton
import triton.language as tl

from ..recurrence.triton_math import split_gates, stack_gates, tanh

# Rows are padded to a multiple of this many entries, as tensor cores are fastest if rows are aligned to 16 bytes.
PITCH = 16
TABLE_SIZE = 10


class Workspace:
    """The buffers that the steps of one recurrence share, and the launches of its steps.

    Attributes:
        table: the int64 values through which the steps find the tensors of a sequence.
        weight: `[G, H]`, the scaled recurrent weight in the dtype of the product; the caller sets it.
        hidden: `[B, H]`: in the forward pass the product's input (the hidden state), in the backward pass its result.
        gates: `[B, G]`: in the forward pass the product's result, in the backward pass its input (the gradient).
        carried: `[2 (cell, hidden), 2 (even, odd steps), B, H]`, the state, or the gradients of the cell state and, at
            padding, of the hidden state. A step reads one half and writes the other, because a program's threads may
            still read what others have already written.

    Weight, hidden and gates are padded with columns (the weight also with rows) of zeros.
    """

    def __init__(self, device, batch_size, num_chunks, chunk_size, product_dtype, sequence_dtype):
        size = num_chunks * chunk_size
        padded_size, padded_gates = (-(-n // PITCH) * PITCH for n in (size, 2 * num_chunks + 4 * size))
        self.weight, self.hidden, self.gates = (
            torch.zeros(shape, dtype=product_dtype, device=device)
            for shape in ((padded_gates, padded_size), (batch_size, padded_size), (batch_size, padded_gates))
        )
        self.table = torch.zeros(TABLE_SIZE, dtype=torch.int64, device=device)
        self.carried = torch.zeros(2, 2, batch_size, size, dtype=torch.float32, device=device)
        self._sizes = batch_size, padded_gates, padded_size, num_chunks, chunk_size
        self._sequence_dtype = tl.bfloat16 if sequence_dtype == torch.bfloat16 else tl.float32
        self._chunks, self._units = triton.next_power_of_2(num_chunks), triton.next_power_of_2(chunk_size)

    def write_table(self, step: int, tensors: list[torch.Tensor | int | None]) -> None:
        """Sets the table to a time step and the addresses of contiguous tensors (0 if empty), or numbers as they are.

        The values are arguments of the launch, so no host memory must outlive it and nothing waits for a copy.
        """
        values = [step] + [entry.data_ptr() if isinstance(entry, torch.Tensor) else entry or 0 for entry in tensors]
        _write_table_kernel[(1,)](self.table, *values, *[0] * (TABLE_SIZE - len(values)))

    def forward_steps(self, num_steps: int) -> None:
        """Launches the next steps.

        The table has the step, then input gates `[T, B, G]`, outputs `[T, B, H]`, means over chunks of the master
        gates `[T, B, 2]`; if saved for the backward pass, cell states before each step `[T, B, H]`, softmaxes of the
        master gates `[T, B, 2, C]`, activated gates `[T, B, 4, H]`; and a mask `[T, B]` or none.
        """
        batch_size, _, _, num_chunks, _ = self._sizes
        chunks = min(self._chunks, max(1, 256 // self._units))
        for offset in range(num_steps):
            torch.mm(self.hidden, self.weight.t(), out=self.gates)
            _forward_kernel[(batch_size, triton.cdiv(num_chunks, chunks))](
                self.table, self.gates, self.hidden, self.carried, offset, *self._sizes, self._sequence_dtype,
                self._chunks, chunks, self._units, num_warps=4,
            )  # fmt: skip
        self.table[:1].add_(num_steps)

    def backward_steps(self, num_steps: int) -> None:
        """Launches the next steps backward in time.

        The table has the step, then the gradients (or none) of outputs `[T, B, H]` and of the master gates' means
        `[T, B, 2]`; what the forward pass saved: cell states, softmaxes and activated gates; the cell state after the
        last step `[B, H]`, the number `T`; the mask, or none; and the gradient of the input gates `[T, B, G]`.
        """
        num_warps = min(16, max(4, self._chunks * self._units // 256))
        for offset in range(num_steps):
            _backward_kernel[(self._sizes[0],)](
                self.table, self.gates, self.hidden, self.carried, offset, *self._sizes, self._sequence_dtype,
                self._chunks, self._units, num_warps=num_warps,
            )  # fmt: skip
            torch.mm(self.gates, self.weight, out=self.hidden)
        self.table[:1].sub_(num_steps)


@triton.jit(do_not_specialize=["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"])
def _write_table_kernel(table, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9):
    tl.store(table, v0)
    tl.store(table + 1, v1)
    tl.store(table + 2, v2)
    tl.store(table + 3, v3)
    tl.store(table + 4, v4)
    tl.store(table + 5, v5)
    tl.store(table + 6, v6)
    tl.store(table + 7, v7)
    tl.store(table + 8, v8)
    tl.store(table + 9, v9)


@triton.jit
def _is_real(address, index):
    """Returns whether entry `index` of the flattened mask is a real token; always true without a mask."""
    return tl.load(address.to(tl.pointer_type(tl.int8)) + index, mask=address != 0, other=1) != 0


@triton.jit
def _cumax(input_logits, hidden_logits, first, num_chunks: tl.constexpr, ROW: tl.constexpr, CHUNKS: tl.constexpr):
    """Returns softmax and cumulative softmax of `CHUNKS` chunks from the `first` one on, and the row's mean of the
    cumulative softmax, from the logits of the whole row."""
    row = tl.arange(0, ROW)
    logits = tl.load(input_logits + row, mask=row < num_chunks, other=float("-inf")).to(tl.float32)
    logits += tl.load(hidden_logits + row, mask=row < num_chunks, other=0.0).to(tl.float32)
    highest = tl.max(logits, axis=0)
    exponentials = tl.exp(logits - highest)
    total = tl.sum(exponentials, axis=0)
    before = tl.sum(tl.where(row < first, exponentials, 0.0), axis=0)
    # A chunk's exponential is part of the cumulative sums of this chunk and all later ones.
    mean = tl.sum(exponentials * (num_chunks - row), axis=0) / (total * num_chunks)

    chunks = first + tl.arange(0, CHUNKS)
    logits = tl.load(input_logits + chunks, mask=chunks < num_chunks, other=float("-inf")).to(tl.float32)
    logits += tl.load(hidden_logits + chunks, mask=chunks < num_chunks, other=0.0).to(tl.float32)
    exponentials = tl.exp(logits - highest)
    return exponentials / total, (before + tl.cumsum(exponentials, axis=0)) / total, mean


@triton.jit(do_not_specialize=["offset", "batch_size", "gates_pitch", "hidden_pitch"])
def _forward_kernel(table, gates, hidden, carried, offset, batch_size, gates_pitch, hidden_pitch,
                    NUM_CHUNKS: tl.constexpr, CHUNK_SIZE: tl.constexpr, SEQUENCE: tl.constexpr, ROW: tl.constexpr,
                    CHUNKS: tl.constexpr, UNITS: tl.constexpr):  # fmt: skip
    """Computes a block of chunks of one row.

    One program per row would leave most of the GPU idle at the batch sizes of language models, so a row's chunks are
    divided among programs. Each program sums the master gates' few exponentials of the whole row by itself.
    """
    SIZE: tl.constexpr = NUM_CHUNKS * CHUNK_SIZE
    NUM_GATES: tl.constexpr = 2 * NUM_CHUNKS + 4 * SIZE
    row = tl.program_id(0)
    first = tl.program_id(1) * CHUNKS
    step = tl.load(table) + offset
    index = step * batch_size + row
    input_gates = tl.load(table + 1).to(tl.pointer_type(SEQUENCE)) + index * NUM_GATES
    outputs = tl.load(table + 2).to(tl.pointer_type(SEQUENCE)) + index * SIZE
    means = tl.load(table + 3).to(tl.pointer_type(tl.float32)) + index * 2
    saved_cells = tl.load(table + 4)
    saves = saved_cells != 0
    cells = saved_cells.to(tl.pointer_type(tl.float32)) + index * SIZE
    softmaxes = tl.load(table + 5).to(tl.pointer_type(tl.float32)) + index * 2 * NUM_CHUNKS
    activations = tl.load(table + 6).to(tl.pointer_type(tl.float32)) + index * 4 * SIZE
    real = _is_real(tl.load(table + 7), index)
    gates += row * gates_pitch
    hidden += row * hidden_pitch
    carried_cell = carried + row * SIZE
    carried_hidden = carried_cell + 2 * batch_size * SIZE
    taken = (step % 2) * batch_size * SIZE
    given = ((step + 1) % 2) * batch_size * SIZE

    chunks = first + tl.arange(0, CHUNKS)
    input_softmax, input_cumulative, input_mean = _cumax(input_gates, gates, first, NUM_CHUNKS, ROW, CHUNKS)
    forget_softmax, master_forget_gate, forget_mean = _cumax(
        input_gates + NUM_CHUNKS, gates + NUM_CHUNKS, first, NUM_CHUNKS, ROW, CHUNKS
    )
    tl.store(means, 1 - input_mean, mask=first == 0)
    tl.store(means + 1, forget_mean, mask=first == 0)
    tl.store(softmaxes + chunks, input_softmax, mask=(chunks < NUM_CHUNKS) & saves)
    tl.store(softmaxes + NUM_CHUNKS + chunks, forget_softmax, mask=(chunks < NUM_CHUNKS) & saves)

    within_chunk = tl.arange(0, UNITS)[None, :]
    units = chunks[:, None] * CHUNK_SIZE + within_chunk
    exists = (chunks[:, None] < NUM_CHUNKS) & (within_chunk < CHUNK_SIZE)
    gate = tl.arange(0, 4)[:, None, None]
    columns = gate * SIZE + units[None, :, :]
    all_exist = (gate < 4) & exists[None, :, :]
    logits = tl.load(input_gates + 2 * NUM_CHUNKS + columns, all_exist, 0.0).to(tl.float32)
    logits += tl.load(gates + 2 * NUM_CHUNKS + columns, all_exist, 0.0).to(tl.float32)
    activated = tl.where(gate == 0, tanh(logits), tl.sigmoid(logits))
    tl.store(activations + columns, activated, mask=all_exist & saves)
    candidate, input_gate, forget_gate, output_gate = split_gates(activated, gate)

    master_input_gate, master_forget_gate = (1 - input_cumulative)[:, None], master_forget_gate[:, None]
    overlap = master_input_gate * master_forget_gate
    previous = tl.load(carried_cell + taken + units, exists, 0.0)
    cell = (forget_gate * overlap + (master_forget_gate - overlap)) * previous
    cell += (input_gate * overlap + (master_input_gate - overlap)) * candidate
    output = output_gate * tanh(cell)
    output = tl.where(real, output, tl.load(carried_hidden + taken + units, exists & (real == 0), 0.0))
    tl.store(carried_cell + given + units, tl.where(real, cell, previous), mask=exists)
    tl.store(carried_hidden + given + units, output, mask=exists)
    tl.store(hidden + units, output.to(hidden.dtype.element_ty), mask=exists)
    tl.store(outputs + units, output.to(SEQUENCE), mask=exists)
    tl.store(cells + units, previous, mask=exists & saves)


@triton.jit(do_not_specialize=["offset", "batch_size", "gates_pitch", "hidden_pitch"])
def _backward_kernel(table, gates, hidden, carried, offset, batch_size, gates_pitch, hidden_pitch,
                     NUM_CHUNKS: tl.constexpr, CHUNK_SIZE: tl.constexpr, SEQUENCE: tl.constexpr, CHUNKS: tl.constexpr,
                     UNITS: tl.constexpr):  # fmt: skip
    """Computes one row, because gradients of its master gates are sums over all later chunks.

    Dividing the row would need a second kernel, or an atomic counter and partial sums that the last program reads.
    Either takes about as long as one multiprocessor needs to read and write a row of a thousand units (docs/speed.md).
    """
    SIZE: tl.constexpr = NUM_CHUNKS * CHUNK_SIZE
    NUM_GATES: tl.constexpr = 2 * NUM_CHUNKS + 4 * SIZE
    row = tl.program_id(0)
    step = tl.load(table) - offset
    index = step * batch_size + row
    grad_outputs = tl.load(table + 1)
    grad_means = tl.load(table + 2)
    cells = tl.load(table + 3).to(tl.pointer_type(tl.float32)) + index * SIZE
    softmaxes = tl.load(table + 4).to(tl.pointer_type(tl.float32)) + index * 2 * NUM_CHUNKS
    activations = tl.load(table + 5).to(tl.pointer_type(tl.float32)) + index * 4 * SIZE
    last_cell = tl.load(table + 6).to(tl.pointer_type(tl.float32)) + row * SIZE
    is_last = step + 1 == tl.load(table + 7)
    real = _is_real(tl.load(table + 8), index)
    grad_gates = tl.load(table + 9).to(tl.pointer_type(SEQUENCE)) + index * NUM_GATES
    gates += row * gates_pitch
    hidden += row * hidden_pitch
    carried_cell = carried + row * SIZE
    carried_hidden = carried_cell + 2 * batch_size * SIZE
    taken = ((step + 1) % 2) * batch_size * SIZE
    given = (step % 2) * batch_size * SIZE

    chunks = tl.arange(0, CHUNKS)
    is_chunk = chunks < NUM_CHUNKS
    within_chunk = tl.arange(0, UNITS)[None, :]
    units = chunks[:, None] * CHUNK_SIZE + within_chunk
    exists = is_chunk[:, None] & (within_chunk < CHUNK_SIZE)

    grad_hidden = tl.load(hidden + units, exists, 0.0).to(tl.float32)
    grad_hidden += tl.load(carried_hidden + taken + units, exists, 0.0)
    from_outside = grad_outputs.to(tl.pointer_type(SEQUENCE)) + index * SIZE + units
    grad_hidden += tl.load(from_outside, exists & (grad_outputs != 0), 0.0).to(tl.float32)
    grad_cell = tl.load(carried_cell + taken + units, exists, 0.0)
    tl.store(carried_hidden + given + units, tl.where(real, 0.0, grad_hidden), mask=exists)
    passed_on = tl.where(real, 0.0, grad_cell)
    grad_hidden = tl.where(real, grad_hidden, 0.0)

    gate = tl.arange(0, 4)[:, None, None]
    columns = gate * SIZE + units[None, :, :]
    all_exist = (gate < 4) & exists[None, :, :]
    activated = tl.load(activations + columns, all_exist, 0.0)
    candidate, input_gate, forget_gate, output_gate = split_gates(activated, gate)
    previous = tl.load(cells + units, exists, 0.0)
    cell = tl.load(cells + batch_size * SIZE + units, exists & (is_last == 0), 0.0)
    cell_tanh = tanh(cell + tl.load(last_cell + units, exists & is_last, 0.0))
    input_softmax = tl.load(softmaxes + chunks, is_chunk, 0.0)
    forget_softmax = tl.load(softmaxes + NUM_CHUNKS + chunks, is_chunk, 0.0)
    master_input_gate = 1 - tl.cumsum(input_softmax, axis=0)[:, None]
    master_forget_gate = tl.cumsum(forget_softmax, axis=0)[:, None]
    overlap = master_input_gate * master_forget_gate

    grad_cell = tl.where(real, grad_cell + grad_hidden * output_gate * (1 - cell_tanh * cell_tanh), 0.0)
    passed_on += grad_cell * (forget_gate * overlap + (master_forget_gate - overlap))
    tl.store(carried_cell + given + units, passed_on, mask=exists)
    grad_activated = stack_gates(
        grad_cell * (input_gate * overlap + (master_input_gate - overlap)), grad_cell * overlap * candidate,
        grad_cell * overlap * previous, grad_hidden * cell_tanh, gate,
    )  # fmt: skip
    slope = tl.where(gate == 0, 1 - activated * activated, activated * (1 - activated))
    grad_units = grad_activated * slope
    PRODUCT: tl.constexpr = gates.dtype.element_ty
    tl.store(grad_gates + 2 * NUM_CHUNKS + columns, grad_units.to(SEQUENCE), mask=all_exist)
    tl.store(gates + 2 * NUM_CHUNKS + columns, grad_units.to(PRODUCT), mask=all_exist)

    # The master input gate is 1 - cumsum(softmax), the master forget gate cumsum(softmax).
    slack = candidate * (input_gate - 1) + previous * (forget_gate - 1)
    grad_master_input = tl.sum(grad_cell * (candidate + master_forget_gate * slack), axis=1)
    grad_master_forget = tl.sum(grad_cell * (previous + master_input_gate * slack), axis=1)
    from_outside = grad_means.to(tl.pointer_type(tl.float32)) + index * 2
    grad_input_mean = tl.load(from_outside, grad_means != 0, 0.0) / NUM_CHUNKS
    grad_forget_mean = tl.load(from_outside + 1, grad_means != 0, 0.0) / NUM_CHUNKS
    grad_master_input += tl.where(is_chunk, grad_input_mean, 0.0)
    grad_master_forget += tl.where(is_chunk, grad_forget_mean, 0.0)
    grad_softmax = tl.cumsum(-grad_master_input, axis=0, reverse=True)
    grad_logits = input_softmax * (grad_softmax - tl.sum(grad_softmax * input_softmax, axis=0))
    tl.store(grad_gates + chunks, grad_logits.to(SEQUENCE), mask=is_chunk)
    tl.store(gates + chunks, grad_logits.to(PRODUCT), mask=is_chunk)
    grad_softmax = tl.cumsum(grad_master_forget, axis=0, reverse=True)
    grad_logits = forget_softmax * (grad_softmax - tl.sum(grad_softmax * forget_softmax, axis=0))
    tl.store(grad_gates + NUM_CHUNKS + chunks, grad_logits.to(SEQUENCE), mask=is_chunk)
    tl.store(gates + NUM_CHUNKS + chunks, grad_logits.to(PRODUCT), mask=is_chunk)
