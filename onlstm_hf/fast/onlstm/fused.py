"""The ordered-neurons recurrence by plain PyTorch operations, without a graph over time: on any device and dtype."""

import torch

from ..recurrence.fast_path import FastPath
from .contract import Gradients, Inputs, Options, Trace


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    input_gates, hidden, cell, mask = inputs.input_gates, inputs.hidden, inputs.cell, inputs.mask
    length, batch_size, num_gates = input_gates.shape
    num_chunks, chunk_size = cell.shape[1:]
    size = num_chunks * chunk_size
    # Without a backward pass every step writes to the same place.
    saved_length = length if options.save_for_backward else 1
    outputs = cell.new_empty(length, batch_size, size)
    distances = cell.new_empty(length, batch_size, 2)
    cells = cell.new_empty(saved_length, batch_size, size)
    softmaxes = cell.new_empty(saved_length, batch_size, 2, num_chunks)
    activations = cell.new_empty(saved_length, batch_size, 4, size)
    gates = cell.new_empty(batch_size, num_gates)
    last_cell = cell.reshape(batch_size, size).clone()
    weight, scale = _product_weight(inputs, options).t(), options.recurrent_scale

    for step in range(length):
        place = step if options.save_for_backward else 0
        if options.product_in_bfloat16 or input_gates.dtype != gates.dtype:
            torch.add(input_gates[step], hidden.to(weight.dtype) @ weight, alpha=scale, out=gates)
        else:
            torch.addmm(input_gates[step], hidden, weight, alpha=scale, out=gates)
        torch.softmax(gates[:, : 2 * num_chunks].view(batch_size, 2, num_chunks), -1, out=softmaxes[place])
        units = gates[:, 2 * num_chunks :].view(batch_size, 4, size)
        torch.tanh(units[:, 0], out=activations[place, :, 0])
        torch.sigmoid(units[:, 1:], out=activations[place, :, 1:])

        master_input_gate, master_forget_gate = _master_gates(softmaxes[place])
        torch.mean(master_input_gate, -1, out=distances[step, :, 0])
        torch.mean(master_forget_gate, -1, out=distances[step, :, 1])
        overlap = (master_input_gate * master_forget_gate).unsqueeze(-1)
        candidate, input_gate, forget_gate, output_gate = (
            activations[place].view(batch_size, 4, num_chunks, chunk_size).unbind(1)
        )
        previous = cells[place].copy_(last_cell).view(batch_size, num_chunks, chunk_size)
        current = last_cell.view(batch_size, num_chunks, chunk_size)
        torch.addcmul(master_forget_gate.unsqueeze(-1) - overlap, overlap, forget_gate, out=current)
        current.mul_(previous)
        current.addcmul_(torch.addcmul(master_input_gate.unsqueeze(-1) - overlap, overlap, input_gate), candidate)
        torch.tanh(last_cell, out=outputs[step])
        outputs[step].mul_(output_gate.view(batch_size, size))
        if mask is not None:
            padding = ~mask[step].unsqueeze(-1)
            last_cell.copy_(torch.where(padding, cells[place], last_cell))
            outputs[step].copy_(torch.where(padding, hidden, outputs[step]))
        hidden = outputs[step]

    saved = (cells, softmaxes, activations)
    if not options.save_for_backward:
        saved = tuple(tensor[:0].clone() for tensor in saved)
    return Trace(outputs.to(input_gates.dtype), last_cell.view_as(cell), distances, *saved)


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`.

    With the forward values at hand every gate's gradient is linear in the gradients of `c_t` and `h_t`. The factors of
    that map are computed for the whole sequence at once, so that the loop backwards in time is left with a handful of
    products.
    """
    outputs, last_cell, _, cells, softmaxes, activations = trace
    grad_outputs, grad_last_cell, grad_distances, *_ = grad_trace
    mask, scale = inputs.mask, options.recurrent_scale
    length, batch_size, size = cells.shape
    num_chunks = softmaxes.shape[-1]
    chunked = (length, batch_size, num_chunks, size // num_chunks)

    candidate, input_gate, forget_gate, output_gate = (gate.view(chunked) for gate in activations.unbind(2))
    master_input_gate, master_forget_gate = (gate.unsqueeze(-1) for gate in _master_gates(softmaxes))
    overlap = master_input_gate * master_forget_gate
    previous = cells.view(chunked)
    tanh_cell = torch.cat([previous[1:], last_cell.unsqueeze(0)]).tanh_()

    # d c_t = per_hidden * d h_t + (what comes from c_{t+1});  d c_{t-1} = per_previous * d c_t
    cell_per_hidden = (output_gate * (1 - tanh_cell.square())).view_as(cells)
    previous_per_cell = torch.addcmul(master_forget_gate - overlap, overlap, forget_gate)
    output_per_hidden = (tanh_cell * output_gate * (1 - output_gate)).view_as(cells)
    gates_per_cell = activations.new_empty(length, batch_size, 3, *chunked[2:])
    effective_input_gate = torch.addcmul(master_input_gate - overlap, overlap, input_gate)
    torch.mul(effective_input_gate, 1 - candidate.square(), out=gates_per_cell[:, :, 0])
    torch.mul(overlap * candidate * input_gate, 1 - input_gate, out=gates_per_cell[:, :, 1])
    torch.mul(overlap * previous * forget_gate, 1 - forget_gate, out=gates_per_cell[:, :, 2])
    masters_per_cell = activations.new_empty(length, batch_size, 2, *chunked[2:])
    input_slack, forget_slack = candidate * (input_gate - 1), previous * (forget_gate - 1)
    torch.add(candidate, master_forget_gate * (input_slack + forget_slack), out=masters_per_cell[:, :, 0])
    torch.add(previous, master_input_gate * (input_slack + forget_slack), out=masters_per_cell[:, :, 1])
    gates_per_cell = gates_per_cell.view(length, batch_size, 3, size)
    previous_per_cell = previous_per_cell.view_as(cells)
    if mask is not None:
        real = mask.unsqueeze(-1).to(cells.dtype)
        cell_per_hidden = cell_per_hidden * real
        output_per_hidden = output_per_hidden * real
        gates_per_cell = gates_per_cell * real.unsqueeze(-1)
        masters_per_cell = masters_per_cell * real[..., None, None]
        previous_per_cell = previous_per_cell * real + (1 - real)

    # The master input gate is 1 - cumsum(softmax), the master forget gate cumsum(softmax).
    signs = softmaxes.new_tensor([-1.0, 1.0]).unsqueeze(-1)
    grad_gates = cells.new_empty(length, batch_size, 2 * num_chunks + 4 * size)
    weight = _product_weight(inputs, options)
    grad_hidden = torch.zeros_like(cells[0])
    grad_cell = torch.zeros_like(cells[0]) if grad_last_cell is None else grad_last_cell.reshape(batch_size, size)
    for step in reversed(range(length)):
        if grad_outputs is not None:
            grad_hidden = grad_hidden + grad_outputs[step]
        grad_cell = torch.addcmul(grad_cell, grad_hidden, cell_per_hidden[step])

        step_gates = grad_gates[step, :, 2 * num_chunks :].view(batch_size, 4, size)
        torch.mul(gates_per_cell[step], grad_cell.unsqueeze(1), out=step_gates[:, :3])
        torch.mul(output_per_hidden[step], grad_hidden, out=step_gates[:, 3])
        grad_masters = (masters_per_cell[step] * grad_cell.view(batch_size, 1, *chunked[2:])).sum(-1)
        if grad_distances is not None:
            grad_masters = grad_masters + grad_distances[step].unsqueeze(-1) / num_chunks
        grad_softmaxes = grad_masters.mul_(signs).flip(-1).cumsum(-1).flip(-1)
        centred = grad_softmaxes - (grad_softmaxes * softmaxes[step]).sum(-1, keepdim=True)
        torch.mul(centred, softmaxes[step], out=grad_gates[step, :, : 2 * num_chunks].view(batch_size, 2, num_chunks))
        grad_cell = grad_cell * previous_per_cell[step]
        product = (grad_gates[step].to(weight.dtype) @ weight).to(cells.dtype)
        if scale != 1:
            product = product * scale
        grad_hidden = product if mask is None else torch.addcmul(product, grad_hidden, 1 - real[step])
    return Gradients(grad_gates.to(outputs.dtype), grad_hidden, grad_cell.view_as(last_cell))


def _product_weight(inputs: Inputs, options: Options) -> torch.Tensor:
    """The recurrent weight `[G, H]` in the dtype of the product."""
    return inputs.kept_weight.to(torch.bfloat16) if options.product_in_bfloat16 else inputs.kept_weight


def _master_gates(softmaxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Master input and forget gate `[..., C]` from their softmaxes `[..., 2, C]`."""
    cumulative = softmaxes.cumsum(-1)
    return 1 - cumulative.select(-2, 0), cumulative.select(-2, 1)


PATH = FastPath(forward, backward)
