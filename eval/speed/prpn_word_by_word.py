"""A PRPN in the order of its authors' code, in the plain operations of its equations: the yardstick of its speed.

The parsing network, the output of the predict network and the decoder take the whole sequence. All layers of the
reading network and the attention of the predict network take one word and then the next, with tapes of memories that
are copied as a whole each time.
"""

import math
from typing import NamedTuple

import torch
from torch.nn import functional as F

from onlstm_hf import PRPNForCausalLM
from onlstm_hf.fast.deviation_norm import layer_norm
from onlstm_hf.fast.prpn.equations import ReadingWeights, read_step
from onlstm_hf.fast.structured_attention import attend
from onlstm_hf.models.modeling_prpn import PredictNetwork, ReadingLayer


class _Tape(NamedTuple):
    """The hidden and the cell states of the last steps, each `[B, S, H]`, oldest first."""

    hidden: torch.Tensor
    cell: torch.Tensor


def logits_word_by_word(model: PRPNForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """The logits `[B, T, V]` of the token ids `[B, T]`. For models with all three networks and their attentions."""
    network = model.model
    embeddings, state = network.embeddings(ids), network.initial_state(len(ids))
    structure = network.find_structure(embeddings, state, None)
    tapes, predicting_tape = [_Tape(*memories) for memories in state.memories], state.memories[-1][0]
    summary_masks = [
        _drop(torch.ones(model.config.hidden_size, device=ids.device), layer.recurrent_dropout)
        for layer in network.reading_network
    ]
    features = []
    for step in range(ids.shape[1]):
        hidden = embeddings[:, step]
        for number, layer in enumerate(network.reading_network):
            gates = structure.reading_gates[:, step]
            hidden, tapes[number] = _read(layer, hidden, tapes[number], gates, summary_masks[number])
        summary = _look_back(network.predict_network, hidden, predicting_tape, structure.prediction_gates[:, step])
        predicting_tape = torch.cat([predicting_tape[:, 1:], hidden.unsqueeze(1)], dim=1)
        features.append(torch.cat([hidden, summary], dim=-1))
    outputs = network.predict_network.predict(torch.stack(features, dim=1), None)
    return model.lm_head(network.output_dropout(outputs))


def _read(
    layer: ReadingLayer, word: torch.Tensor, tape: _Tape, gates: torch.Tensor, summary_mask: torch.Tensor
) -> tuple[torch.Tensor, _Tape]:
    """The new hidden state `[B, H]` of a layer, and its tape with it."""
    projection, norm = layer.key_projection, layer.recurrent_norm
    key = projection(_drop(torch.cat([word, tape.hidden[:, -1]], dim=-1), layer.key_dropout))
    attention = _attention(_drop(key, layer.key_dropout), tape.hidden, gates)
    summary_hidden, summary_cell = ((attention * memories).sum(dim=1) for memories in tape)
    input_gates = layer.input_projection(_drop(word, layer.input_dropout))
    weights = ReadingWeights(
        projection.weight, projection.bias, layer.recurrent_projection.weight, layer.recurrent_projection.bias,
        norm.weight, norm.bias, layer.cell_norm.weight, layer.cell_norm.bias,
    )  # fmt: skip
    hidden, cell = read_step(
        layer_norm(input_gates, layer.input_norm.weight, layer.input_norm.bias),
        summary_hidden * summary_mask,
        summary_cell,
        weights,
    )
    new = (
        torch.cat([old[:, 1:], newest.unsqueeze(1)], dim=1) for old, newest in zip(tape, (hidden, cell), strict=True)
    )
    return hidden, _Tape(*new)


def _look_back(
    network: PredictNetwork, hidden: torch.Tensor, memories: torch.Tensor, gates: torch.Tensor
) -> torch.Tensor:
    key = _drop(network.key_projection(_drop(hidden, network.dropout)), network.dropout)
    return (_attention(key, memories, gates) * memories).sum(dim=1)


def _attention(key: torch.Tensor, memories: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """The weight of each memory in a summary, `[B, S, 1]`."""
    scores = torch.bmm(memories, key.unsqueeze(-1)).squeeze(-1) / math.sqrt(key.shape[-1])
    return attend(scores, gates).unsqueeze(-1)


def _drop(tensor: torch.Tensor, dropout: torch.nn.Module) -> torch.Tensor:
    return F.dropout(tensor, dropout.probability, dropout.training)
