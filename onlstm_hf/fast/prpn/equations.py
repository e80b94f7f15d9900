"""The recurrence of the PRPN's reading network as Shen, Lin, Huang & Courville (ICLR 2018, section 4.2) define it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional as F

from ..deviation_norm import layer_norm
from ..recurrence.scan import loop
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
    loop: Callable = loop,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The definition: one step after the other, differentiated by autograd.

    These are the authors' operations in the authors' order, newest memory first. In float32 their numbers are met bit
    by bit where matrix products add up as on the authors' side.
    """

    def step(windows, entries):
        (hidden_window, cell_window), (input_gates, key_inputs, gates, newest_keep, key_keep) = windows, entries
        newest = hidden_window[:, 0]
        if newest_keep is not None:
            newest = newest * newest_keep
        key = F.linear(torch.cat([key_inputs, newest], dim=-1), weights.key, weights.key_bias)
        key = key.to(input_gates.dtype)
        if key_keep is not None:
            key = key * key_keep
        with torch.autocast(key.device.type, enabled=False):
            scores = (hidden_window @ key.unsqueeze(-1)).squeeze(-1) / math.sqrt(key.shape[-1])
        attention = attend(scores, gates)
        summary_hidden = (hidden_window * attention.unsqueeze(-1)).sum(dim=1)
        summary_cell = (cell_window * attention.unsqueeze(-1)).sum(dim=1)
        if masks.summary is not None:
            summary_hidden = summary_hidden * masks.summary
        hidden, cell = read_step(input_gates, summary_hidden, summary_cell, weights)
        windows = tuple(
            torch.cat([new.unsqueeze(1), window[:, :-1]], dim=1)
            for new, window in ((hidden, hidden_window), (cell, cell_window))
        )
        return windows, (hidden, cell, attention)

    windows = hidden_memories.flip(1), cell_memories.flip(1)
    sequences = input_gates, key_inputs, gates.flip(-1), masks.newest, masks.key
    time_first = tuple(None if entries is None else entries.transpose(0, 1) for entries in sequences)
    _, outputs = loop(step, windows, time_first)
    hiddens, cells, attentions = (output.transpose(0, 1) for output in outputs)
    hiddens, cells = torch.cat([hidden_memories, hiddens], dim=1), torch.cat([cell_memories, cells], dim=1)
    return hiddens, cells, attentions.flip(-1).detach()
