"""The ordered-neurons recurrence of Shen, Tan, Sordoni & Courville (ICLR 2019), section 4.

`ordered_neurons` is the one entrance. Behind it stand the readable reference, which is the definition, and a fused
path with a hand-derived backward pass, which is tested against it. All tensors are time first, as the loop over time
reads them. With `C` chunks of `K` units each (`H = C * K`), the `G = 2 * C + 4 * H` gate columns are, in this order:
master input gate (`C`), master forget gate (`C`), cell candidate (`H`), input gate (`H`), forget gate (`H`), output
gate (`H`).
"""

import re
from typing import NamedTuple

import torch

IMPLEMENTATIONS = ("auto", "reference", "fused")
# Operators are global: a second copy of this file, which came with a checkpoint, must not replace those of the first.
_OPERATORS = re.sub(r"\W", "_", __name__)


class OrderedNeuronsOutput(NamedTuple):
    """What the recurrence of one layer returns.

    Attributes:
        outputs: `[T, B, H]`, the hidden states `h_t`.
        cell: `[B, C, K]`, the last cell state, in the precision that it was computed in.
        forget_distances: `[T, B]`, `1 - mean_C(master forget gate)`.
        input_distances: `[T, B]`, `mean_C(master input gate)`.
    """

    outputs: torch.Tensor
    cell: torch.Tensor
    forget_distances: torch.Tensor
    input_distances: torch.Tensor


def cumax(logits: torch.Tensor) -> torch.Tensor:
    """Cumulative softmax over the last dimension (equation 6): a soft, monotone switch from 0 to 1."""
    return logits.softmax(dim=-1).cumsum(dim=-1)


def ordered_neurons(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None = None,
    implementation: str = "auto",
) -> OrderedNeuronsOutput:
    """Runs one ordered-neurons layer over a sequence.

    The cell state and all gates are computed in float32 (float64 for float64 input), whatever the dtype of the
    weights. Under bfloat16 autocast the product with `recurrent_weight` is in bfloat16. The fused path cannot be
    differentiated twice; the reference can.

    Args:
        input_gates: `[T, B, G]`, the affine map of the layer's input, with both biases in it.
        recurrent_weight: `[G, H]`, the map of the previous hidden state (drop-connect already applied).
        hidden: `[B, H]`, the hidden state before the first step.
        cell: `[B, C, K]`, the cell state before the first step; its shape says how many chunks there are.
        mask: optional `[T, B]` booleans, `False` where a step must leave the state as it is (padding).
        implementation: `"reference"`, `"fused"` or `"auto"` (the fastest one that fits).

    Raises:
        ValueError: if the shapes do not fit together or the implementation is unknown.
    """
    _check_shapes(input_gates, recurrent_weight, hidden, cell, mask)
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, not {implementation!r}")
    run = _reference if implementation == "reference" else _fused
    outputs, last_cell, master_gates = run(input_gates, recurrent_weight, hidden, cell, mask)
    input_distances, one_minus_forget = master_gates.mean(dim=-1).unbind(dim=-1)
    return OrderedNeuronsOutput(outputs, last_cell, 1 - one_minus_forget, input_distances)


def ordered_neurons_step(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step of the recurrence: equations 7 to 14 of the paper.

    Args:
        gates: `[B, G]`, the affine map of input and previous hidden state, before the nonlinearities.
        cell: `[B, C, K]`, the previous cell state.

    Returns:
        The hidden state `[B, H]`, the cell state `[B, C, K]`, and the master input and forget gates `[B, 2, C]`.
    """
    batch_size, num_chunks, chunk_size = cell.shape
    size = num_chunks * chunk_size
    master_input, master_forget, candidate, input_gate, forget_gate, output_gate = gates.split(
        [num_chunks, num_chunks, size, size, size, size], dim=-1
    )
    master_input_gate = 1 - cumax(master_input)
    master_forget_gate = cumax(master_forget)
    candidate, input_gate, forget_gate, output_gate = (
        units.view(batch_size, num_chunks, chunk_size)
        for units in (candidate.tanh(), input_gate.sigmoid(), forget_gate.sigmoid(), output_gate.sigmoid())
    )

    master_input_chunks, master_forget_chunks = master_input_gate.unsqueeze(-1), master_forget_gate.unsqueeze(-1)
    overlap = master_forget_chunks * master_input_chunks
    forget_gate = forget_gate * overlap + (master_forget_chunks - overlap)
    input_gate = input_gate * overlap + (master_input_chunks - overlap)
    cell = forget_gate * cell + input_gate * candidate
    hidden = output_gate * cell.tanh()
    return hidden.reshape(batch_size, size), cell, torch.stack([master_input_gate, master_forget_gate], dim=1)


def _reference(input_gates, recurrent_weight, hidden, cell, mask):
    """The definition: one step after the other, differentiated by autograd."""
    input_dtype, dtype = input_gates.dtype, _state_dtype(input_gates)
    input_gates, hidden, cell = input_gates.to(dtype), hidden.to(dtype), cell.to(dtype)
    outputs, master_gates = [], []
    for step, gates in enumerate(input_gates):
        gates = gates + torch.nn.functional.linear(hidden, recurrent_weight.to(dtype)).to(dtype)
        next_hidden, next_cell, step_master_gates = ordered_neurons_step(gates, cell)
        if mask is not None:
            next_hidden = torch.where(mask[step, :, None], next_hidden, hidden)
            next_cell = torch.where(mask[step, :, None, None], next_cell, cell)
        hidden, cell = next_hidden, next_cell
        outputs.append(hidden)
        master_gates.append(step_master_gates)
    return torch.stack(outputs).to(input_dtype), cell, torch.stack(master_gates)


def _fused(input_gates, recurrent_weight, hidden, cell, mask):
    """One opaque operator for the whole sequence: no graph over time, a hand-derived backward pass."""
    input_dtype, dtype = input_gates.dtype, _state_dtype(input_gates)
    product_dtype = _product_dtype(input_gates, dtype)
    outputs, cells, master_gates, _, _ = _fused_forward(
        input_gates.to(dtype),
        recurrent_weight.to(dtype),
        hidden.to(dtype),
        cell.to(dtype),
        mask,
        product_dtype == torch.bfloat16,
    )
    return outputs.to(input_dtype), cells[-1].view_as(cell), master_gates


def _state_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _product_dtype(tensor: torch.Tensor, state_dtype: torch.dtype) -> torch.dtype:
    """The dtype of the product with the recurrent weight: the autocast one, or that of the state."""
    device_type = tensor.device.type
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return state_dtype


def _check_shapes(input_gates, recurrent_weight, hidden, cell, mask) -> None:
    if input_gates.dim() != 3 or input_gates.shape[0] == 0:
        raise ValueError(f"input_gates must be [T, B, G] with T >= 1, not {list(input_gates.shape)}")
    length, batch_size, num_gates = input_gates.shape
    if cell.dim() != 3 or cell.shape[0] != batch_size:
        raise ValueError(f"the cell state must be [B={batch_size}, C, K], not {list(cell.shape)}")
    size = cell.shape[1] * cell.shape[2]
    expected = {
        "input_gates": (input_gates, [length, batch_size, 2 * cell.shape[1] + 4 * size]),
        "recurrent_weight": (recurrent_weight, [num_gates, size]),
        "hidden": (hidden, [batch_size, size]),
        "mask": (mask, [length, batch_size]),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and list(tensor.shape) != shape:
            raise ValueError(
                f"{name} must be {shape} for a cell state of {list(cell.shape)}, not {list(tensor.shape)}"
            )
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must hold booleans, not {mask.dtype}")


@torch.library.custom_op(f"{_OPERATORS}::ordered_neurons_forward", mutates_args=())
def _fused_forward(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None,
    product_in_bfloat16: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns outputs `[T, B, H]`, cells `[T + 1, B, H]`, master gates and their softmax `[T, B, 2, C]`, and the
    activated gates `[T, B, 4, H]` (candidate, input, forget, output)."""
    length, batch_size, num_gates = input_gates.shape
    num_chunks, chunk_size = cell.shape[1:]
    size = num_chunks * chunk_size

    outputs = input_gates.new_empty(length, batch_size, size)
    cells = input_gates.new_empty(length + 1, batch_size, size)
    softmaxes = input_gates.new_empty(length, batch_size, 2, num_chunks)
    activations = input_gates.new_empty(length, batch_size, 4, size)
    gates = input_gates.new_empty(batch_size, num_gates)
    cells[0] = cell.reshape(batch_size, size)
    weight = recurrent_weight.t()
    if product_in_bfloat16:
        weight = weight.to(torch.bfloat16)

    for step in range(length):
        if product_in_bfloat16:
            torch.add(input_gates[step], hidden.to(torch.bfloat16) @ weight, out=gates)
        else:
            torch.addmm(input_gates[step], hidden, weight, out=gates)
        torch.softmax(gates[:, : 2 * num_chunks].view(batch_size, 2, num_chunks), -1, out=softmaxes[step])
        units = gates[:, 2 * num_chunks :].view(batch_size, 4, size)
        torch.tanh(units[:, 0], out=activations[step, :, 0])
        torch.sigmoid(units[:, 1:], out=activations[step, :, 1:])

        master_input_gate, master_forget_gate = _master_gates(softmaxes[step])
        overlap = (master_input_gate * master_forget_gate).unsqueeze(-1)
        candidate, input_gate, forget_gate, output_gate = (
            activations[step].view(batch_size, 4, num_chunks, chunk_size).unbind(1)
        )
        previous = cells[step].view(batch_size, num_chunks, chunk_size)
        current = cells[step + 1].view(batch_size, num_chunks, chunk_size)
        torch.addcmul(master_forget_gate.unsqueeze(-1) - overlap, overlap, forget_gate, out=current)
        current.mul_(previous)
        current.addcmul_(torch.addcmul(master_input_gate.unsqueeze(-1) - overlap, overlap, input_gate), candidate)
        torch.tanh(cells[step + 1], out=outputs[step])
        outputs[step].mul_(output_gate.view(batch_size, size))
        if mask is not None:
            padding = ~mask[step].unsqueeze(-1)
            cells[step + 1].copy_(torch.where(padding, cells[step], cells[step + 1]))
            outputs[step].copy_(torch.where(padding, hidden, outputs[step]))
        hidden = outputs[step]

    master_gates = torch.stack(_master_gates(softmaxes), dim=2)
    return outputs, cells, master_gates, softmaxes, activations


def _master_gates(softmaxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Master input and forget gate `[..., C]` from their softmaxes `[..., 2, C]`."""
    cumulative = softmaxes.cumsum(-1)
    return 1 - cumulative.select(-2, 0), cumulative.select(-2, 1)


@_fused_forward.register_fake
def _(input_gates, recurrent_weight, hidden, cell, mask, product_in_bfloat16):
    length, batch_size, _ = input_gates.shape
    num_chunks, size = cell.shape[1], hidden.shape[1]
    return (
        input_gates.new_empty(length, batch_size, size),
        input_gates.new_empty(length + 1, batch_size, size),
        input_gates.new_empty(length, batch_size, 2, num_chunks),
        input_gates.new_empty(length, batch_size, 2, num_chunks),
        input_gates.new_empty(length, batch_size, 4, size),
    )


@torch.library.custom_op(f"{_OPERATORS}::ordered_neurons_backward", mutates_args=())
def _fused_backward(
    grad_outputs: torch.Tensor | None,
    grad_cells: torch.Tensor | None,
    grad_master_gates: torch.Tensor | None,
    outputs: torch.Tensor,
    cells: torch.Tensor,
    master_gates: torch.Tensor,
    softmaxes: torch.Tensor,
    activations: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    mask: torch.Tensor | None,
    product_in_bfloat16: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of the input gates, the recurrent weight, the first hidden and the first cell state `[B, H]`.

    With the forward values at hand every gate's gradient is linear in the gradients of `c_t` and `h_t`. The factors of
    that map are computed for the whole sequence at once, so that the loop backwards in time is left with a handful of
    products; the weight's gradient is one product at the end.
    """
    length, batch_size, num_chunks = outputs.shape[0], outputs.shape[1], softmaxes.shape[-1]
    size = outputs.shape[-1]
    chunked = (length, batch_size, num_chunks, size // num_chunks)

    candidate, input_gate, forget_gate, output_gate = (gate.view(chunked) for gate in activations.unbind(2))
    master_input_gate, master_forget_gate = (gate.unsqueeze(-1) for gate in master_gates.unbind(2))
    overlap = master_input_gate * master_forget_gate
    previous = cells[:-1].view(chunked)
    tanh_cell = cells[1:].view(chunked).tanh()

    # d c_t = per_hidden * d h_t + (what comes from c_{t+1});  d c_{t-1} = per_previous * d c_t
    cell_per_hidden = (output_gate * (1 - tanh_cell.square())).view_as(outputs)
    previous_per_cell = torch.addcmul(master_forget_gate - overlap, overlap, forget_gate)
    output_per_hidden = (tanh_cell * output_gate * (1 - output_gate)).view_as(outputs)
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
    previous_per_cell = previous_per_cell.view_as(outputs)
    if mask is not None:
        real = mask.unsqueeze(-1).to(outputs.dtype)
        cell_per_hidden = cell_per_hidden * real
        output_per_hidden = output_per_hidden * real
        gates_per_cell = gates_per_cell * real.unsqueeze(-1)
        masters_per_cell = masters_per_cell * real[..., None, None]
        previous_per_cell = previous_per_cell * real + (1 - real)

    # The master input gate is 1 - cumsum(softmax), the master forget gate cumsum(softmax).
    signs = softmaxes.new_tensor([-1.0, 1.0]).unsqueeze(-1)
    grad_gates = outputs.new_empty(length, batch_size, 2 * num_chunks + 4 * size)
    weight = recurrent_weight.to(torch.bfloat16) if product_in_bfloat16 else recurrent_weight
    grad_hidden = torch.zeros_like(hidden)
    grad_cell = torch.zeros_like(hidden)
    for step in reversed(range(length)):
        if grad_outputs is not None:
            grad_hidden = grad_hidden + grad_outputs[step]
        if grad_cells is not None:
            grad_cell = grad_cell + grad_cells[step + 1]
        grad_cell = torch.addcmul(grad_cell, grad_hidden, cell_per_hidden[step])

        step_gates = grad_gates[step, :, 2 * num_chunks :].view(batch_size, 4, size)
        torch.mul(gates_per_cell[step], grad_cell.unsqueeze(1), out=step_gates[:, :3])
        torch.mul(output_per_hidden[step], grad_hidden, out=step_gates[:, 3])
        grad_masters = (masters_per_cell[step] * grad_cell.view(batch_size, 1, *chunked[2:])).sum(-1)
        if grad_master_gates is not None:
            grad_masters = grad_masters + grad_master_gates[step]
        grad_softmaxes = grad_masters.mul_(signs).flip(-1).cumsum(-1).flip(-1)
        centred = grad_softmaxes - (grad_softmaxes * softmaxes[step]).sum(-1, keepdim=True)
        torch.mul(centred, softmaxes[step], out=grad_gates[step, :, : 2 * num_chunks].view(batch_size, 2, num_chunks))
        grad_cell = grad_cell * previous_per_cell[step]
        product = (
            (grad_gates[step].to(torch.bfloat16) @ weight).to(outputs.dtype)
            if product_in_bfloat16
            else grad_gates[step] @ weight
        )
        grad_hidden = product if mask is None else torch.addcmul(product, grad_hidden, 1 - real[step])
    if grad_cells is not None:
        grad_cell = grad_cell + grad_cells[0]

    grad_weight = outputs.new_zeros(recurrent_weight.shape)
    products = [(grad_gates[0], hidden)]
    if length > 1:
        products.append((grad_gates[1:].flatten(0, 1), outputs[:-1].flatten(0, 1)))
    for gates, hiddens in products:
        if product_in_bfloat16:
            grad_weight += gates.to(torch.bfloat16).t() @ hiddens.to(torch.bfloat16)
        else:
            grad_weight.addmm_(gates.t(), hiddens)
    return grad_gates, grad_weight, grad_hidden, grad_cell


@_fused_backward.register_fake
def _(grad_outputs, grad_cells, grad_master_gates, outputs, cells, master_gates, softmaxes, activations,
      recurrent_weight, hidden, mask, product_in_bfloat16):  # fmt: skip
    num_gates = recurrent_weight.shape[0]
    return (
        outputs.new_empty(*outputs.shape[:2], num_gates),
        torch.empty_like(recurrent_weight),
        torch.empty_like(hidden),
        torch.empty_like(hidden),
    )


def _save_for_backward(ctx, inputs, output):
    _, recurrent_weight, hidden, cell, mask, ctx.product_in_bfloat16 = inputs
    ctx.cell_shape = cell.shape
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, recurrent_weight, hidden, mask)


def _differentiate(ctx, grad_outputs, grad_cells, grad_master_gates, grad_softmaxes, grad_activations):
    grad_gates, grad_weight, grad_hidden, grad_cell = _fused_backward(
        grad_outputs, grad_cells, grad_master_gates, *ctx.saved_tensors, ctx.product_in_bfloat16
    )
    return grad_gates, grad_weight, grad_hidden, grad_cell.view(ctx.cell_shape), None, None


_fused_forward.register_autograd(_differentiate, setup_context=_save_for_backward)
