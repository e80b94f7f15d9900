"""Recurrences with the same signature for all implementations: the models' equations and the fast paths."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional as F

from onlstm_hf import PRPNConfig
from onlstm_hf.fast.onlstm import operator as onlstm
from onlstm_hf.fast.prpn import operator as prpn
from onlstm_hf.models import modeling_onlstm, modeling_prpn
from onlstm_hf.models.state import LOOPS, loop, state_dtype


class OrderedNeuronsOutput(NamedTuple):
    """Outputs `[T, B, H]`, last cell state `[B, C, K]`, and forget and input distances `[T, B]`."""

    outputs: torch.Tensor
    cell: torch.Tensor
    forget_distances: torch.Tensor
    input_distances: torch.Tensor


def ordered_neurons(
    input_gates,
    recurrent_weight,
    hidden,
    cell,
    mask=None,
    implementation="auto",
    recurrent_scale=1.0,
    recurrent_mask=None,
) -> OrderedNeuronsOutput:
    """Runs `ordered_neurons` of `fast/onlstm/operator.py`, or the loop for `"reference"` and `"scan"`."""
    path = None if implementation in LOOPS else onlstm.RECURRENCE.choose(implementation, input_gates)
    if path is None:
        dtype = state_dtype(input_gates)
        weight = recurrent_weight.to(dtype) * recurrent_scale
        if recurrent_mask is not None:
            weight = weight * recurrent_mask
        recurrent, run = lambda hidden: F.linear(hidden, weight).to(dtype), LOOPS.get(implementation, loop)
        outputs, cell, means = modeling_onlstm.ordered_neurons(input_gates, recurrent, hidden, cell, mask, run)
    else:
        outputs, cell, means = onlstm.ordered_neurons(
            input_gates, recurrent_weight, hidden, cell, mask, path, recurrent_scale, recurrent_mask
        )
    input_distances, forget_means = means.unbind(dim=-1)
    return OrderedNeuronsOutput(outputs, cell, 1 - forget_means, input_distances)


def read_sequence(
    input_gates,
    key_inputs,
    weights,
    gates,
    hidden_memories,
    cell_memories,
    newest_keep=None,
    key_keep=None,
    summary_keep=None,
    implementation="auto",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs `read_sequence` of `fast/prpn/operator.py`, or the loop for `"reference"` and `"scan"`."""
    others = gates, hidden_memories, cell_memories, newest_keep, key_keep, summary_keep
    path = None if implementation in LOOPS else prpn.RECURRENCE.choose(implementation, input_gates)
    if path is not None:
        return prpn.read_sequence(input_gates, key_inputs, weights, *others, path)
    layer = reading_layer(weights)
    layer.implementation = implementation
    return layer.run_loop(input_gates, key_inputs, *others)


def reading_layer(weights: Sequence[torch.Tensor]) -> modeling_prpn.ReadingLayer:
    """Returns a layer of the reading network that uses these tensors as weights."""
    size = len(weights[0])
    config = PRPNConfig(vocab_size=1, embedding_size=1, hidden_size=size + size % 2)
    config.hidden_size = size
    layer = modeling_prpn.ReadingLayer(config, weights[0].shape[1] - size, 0.0)
    modules = layer.key_projection, layer.recurrent_projection, layer.recurrent_norm, layer.cell_norm
    for module, weight, bias in zip(modules, weights[::2], weights[1::2], strict=True):
        for name, tensor in (("weight", weight), ("bias", bias)):
            delattr(module, name)
            setattr(module, name, tensor)
    return layer
