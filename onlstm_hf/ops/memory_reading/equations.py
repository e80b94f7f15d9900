"""The recurrence of the PRPN's reading network as Shen, Lin, Huang & Courville (ICLR 2018, section 4.2) define it."""

import math
from typing import NamedTuple

import torch
from torch.nn import functional as F

from ..deviation_norm import layer_norm
from ..structured_attention import attend
from .contract import ReadingMasks


class ReadingWeights(NamedTuple):
    """What one layer of the reading network learns, but for its map of the layer's input to the gates.

    Attributes:
        key: `[H, I + H]`, map of the layer's input and the newest hidden state to the key of the attention.
        key_bias: `[H]`, its bias.

    All others are those of `StepWeights`.
    """

    key: torch.Tensor
    key_bias: torch.Tensor
    recurrent: torch.Tensor
    recurrent_bias: torch.Tensor
    gates_gain: torch.Tensor
    gates_bias: torch.Tensor
    cell_gain: torch.Tensor
    cell_bias: torch.Tensor


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
    gates = input_gates + layer_norm(recurrent_gates, weights.gates_gain, weights.gates_bias)
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
    cell = forget_gate.sigmoid() * summary_cell + input_gate.sigmoid() * candidate.tanh()
    hidden = output_gate.sigmoid() * layer_norm(cell, weights.cell_gain, weights.cell_bias).tanh()
    return hidden, cell


def reference(
    input_gates: torch.Tensor,
    key_inputs: torch.Tensor,
    weights: ReadingWeights,
    gates: torch.Tensor,
    hidden_memories: torch.Tensor,
    cell_memories: torch.Tensor,
    masks: ReadingMasks,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The definition: one step after the other, differentiated by autograd.

    These are the authors' operations in the authors' order, newest memory first. In float32 their numbers are met bit
    by bit where matrix products add up as on the authors' side.
    """
    hiddens, cells = list(hidden_memories.unbind(1)), list(cell_memories.unbind(1))
    num_slots, attentions = gates.shape[-1], []
    for step in range(input_gates.shape[1]):
        newest = hiddens[-1] if masks.newest is None else hiddens[-1] * masks.newest[:, step]
        key = F.linear(torch.cat([key_inputs[:, step], newest], dim=-1), weights.key, weights.key_bias)
        key = key.to(input_gates.dtype)
        if masks.key is not None:
            key = key * masks.key[:, step]
        hidden_window = torch.stack(hiddens[: -num_slots - 1 : -1], dim=1)
        cell_window = torch.stack(cells[: -num_slots - 1 : -1], dim=1)
        with torch.autocast(key.device.type, enabled=False):
            scores = (hidden_window @ key.unsqueeze(-1)).squeeze(-1) / math.sqrt(key.shape[-1])
        attention = attend(scores, gates[:, step].flip(-1))
        summary_hidden = (hidden_window * attention.unsqueeze(-1)).sum(dim=1)
        summary_cell = (cell_window * attention.unsqueeze(-1)).sum(dim=1)
        if masks.summary is not None:
            summary_hidden = summary_hidden * masks.summary
        hidden, cell = read_step(input_gates[:, step], summary_hidden, summary_cell, weights)
        hiddens.append(hidden)
        cells.append(cell)
        attentions.append(attention.flip(-1))
    return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1), torch.stack(attentions, dim=1).detach()
