"""The recurrence of the ON-LSTM as Shen, Tan, Sordoni & Courville (ICLR 2019, section 4) define it."""

from collections.abc import Callable

import torch

from ..recurrence.scan import loop
from .contract import Inputs


def cumax(logits: torch.Tensor) -> torch.Tensor:
    """Cumulative softmax over the last dimension (equation 6): a soft, monotone switch from 0 to 1."""
    return logits.softmax(dim=-1).cumsum(dim=-1)


def ordered_neurons_step(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step of the recurrence: equations 7 to 14 of the paper.

    Args:
        gates: `[B, G]`, the affine map of input and previous hidden state, before the nonlinearities.
        cell: `[B, C, K]`, the previous cell state.

    Returns:
        The hidden state `[B, H]`, the cell state `[B, C, K]`, and the master input and forget gates `[B, 2, C]`.
    """
    num_chunks, chunk_size = cell.shape[1:]
    size = num_chunks * chunk_size
    master_input, master_forget, candidate, input_gate, forget_gate, output_gate = gates.split(
        [num_chunks, num_chunks, size, size, size, size], dim=-1
    )
    master_input_gate = 1 - cumax(master_input)
    master_forget_gate = cumax(master_forget)
    candidate, input_gate, forget_gate, output_gate = (
        units.unflatten(-1, (num_chunks, chunk_size))
        for units in (candidate.tanh(), input_gate.sigmoid(), forget_gate.sigmoid(), output_gate.sigmoid())
    )

    master_input_chunks, master_forget_chunks = master_input_gate.unsqueeze(-1), master_forget_gate.unsqueeze(-1)
    overlap = master_forget_chunks * master_input_chunks
    forget_gate = forget_gate * overlap + (master_forget_chunks - overlap)
    input_gate = input_gate * overlap + (master_input_chunks - overlap)
    cell = forget_gate * cell + input_gate * candidate
    hidden = output_gate * cell.tanh()
    return hidden.flatten(1), cell, torch.stack([master_input_gate, master_forget_gate], dim=1)


def reference(
    inputs: Inputs, recurrent_scale: float, loop: Callable = loop
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The definition: one step after the other, differentiated by autograd; the first three entries of a `Trace`."""
    input_dtype, dtype = inputs.input_gates.dtype, state_dtype(inputs.input_gates)
    input_gates, hidden, cell = inputs.input_gates.to(dtype), inputs.hidden.to(dtype), inputs.cell.to(dtype)
    recurrent_weight = inputs.recurrent_weight.to(dtype) * recurrent_scale
    if inputs.recurrent_mask is not None:
        recurrent_weight = recurrent_weight * inputs.recurrent_mask

    def step(state, entries):
        (hidden, cell), (gates, mask) = state, entries
        gates = gates + torch.nn.functional.linear(hidden, recurrent_weight).to(dtype)
        next_hidden, next_cell, master_gates = ordered_neurons_step(gates, cell)
        if mask is not None:
            next_hidden = torch.where(mask[:, None], next_hidden, hidden)
            next_cell = torch.where(mask[:, None, None], next_cell, cell)
        return (next_hidden, next_cell), (next_hidden, master_gates.mean(dim=-1))

    (_, cell), (outputs, distances) = loop(step, (hidden, cell), (input_gates, inputs.mask))
    return outputs.to(input_dtype), cell, distances


def state_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype that states and gates are computed in, for a sequence of the tensor's dtype."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
