"""Reads the tensors of the authors' PRPN (github.com/yikangshen/PRPN)."""

import re
from collections.abc import Mapping
from itertools import product

import torch

from ..models.configuration_prpn import PRPNConfig

_AFFINE = {"weight": "weight", "bias": "bias"}
_LAYER_NORM = {"weight": "gamma", "bias": "beta"}
_BATCH_NORM = {name: name for name in ("weight", "bias", "running_mean", "running_var")}


def read_original_prpn(
    state_dict: Mapping[str, torch.Tensor],
    num_slots: int = 15,
    resolution: float = 0.1,
    hard: bool = True,
    **config_options,
) -> tuple[PRPNConfig, dict[str, str]]:
    """The configuration of an original PRPN, and the authors' name of each of our tensors.

    Args:
        state_dict: tensors by the authors' names: `encoder.weight`, `parser.gate.N.*`, `reader.N.*`, `predictor.*`,
            `decoder.bias` and, where the decoder is not tied, `decoder.weight`.
        num_slots: the `nslots` that the model was trained with. This and the next two are not stored in the tensors.
        resolution: likewise.
        hard: likewise.
        config_options: further fields of `PRPNConfig`.

    Raises:
        ValueError: if tensors are missing, unexpected, or of the wrong shape.
    """
    num_layers = _count(state_dict, r"reader\.(\d+)\.")
    num_blocks = _count(state_dict, r"predictor\.res\.res\.(\d+)\.")
    names = _original_names(num_layers, num_blocks)
    counters = {name for name in state_dict if name.endswith(".num_batches_tracked")}
    missing = set(names.values()) - {"decoder.weight"} - set(state_dict)
    if missing:
        raise ValueError(f"not a state dict of the authors' PRPN: missing {', '.join(sorted(missing))}")
    unknown = set(state_dict) - set(names.values()) - counters
    if unknown:
        raise ValueError(f"not a state dict of the authors' PRPN: unexpected {', '.join(sorted(unknown))}")
    for name, dimensions in {"encoder.weight": 2, "parser.gate.1.weight": 3}.items():
        if state_dict[name].dim() != dimensions:
            raise ValueError(f"{name} must have {dimensions} dimensions, not the shape {list(state_dict[name].shape)}")

    vocab_size, embedding_size = state_dict["encoder.weight"].shape
    hidden_size, _, width = state_dict["parser.gate.1.weight"].shape
    decoder = state_dict.get("decoder.weight")
    fields = {
        "vocab_size": vocab_size,
        "embedding_size": embedding_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_residual_blocks": num_blocks,
        "lookback": width - 1,
        "num_slots": num_slots,
        "resolution": resolution,
        "hard": hard,
        "tie_word_embeddings": decoder is None or torch.equal(decoder, state_dict["encoder.weight"]),
    }
    return PRPNConfig(**(fields | config_options)), names


def _count(state_dict: Mapping[str, torch.Tensor], pattern: str) -> int:
    """The number of layers of a kind, which are numbered in the names of their tensors."""
    return len({match[1] for name in state_dict if (match := re.match(pattern, name))})


def _original_names(num_layers: int, num_blocks: int) -> dict[str, str]:
    modules = [
        ("parsing_network.convolution", "parser.gate.1", _AFFINE),
        ("parsing_network.norm", "parser.gate.2", _BATCH_NORM),
        ("parsing_network.distance_convolution", "parser.gate.5", _AFFINE),
        ("predict_network.key_projection", "predictor.projector_pred.1", _AFFINE),
        ("predict_network.output_projection", "predictor.ffd.1", _AFFINE),
        ("predict_network.output_norm", "predictor.ffd.2", _BATCH_NORM),
    ]
    layer_weights = [
        ("key_projection", "projector_summ.1", _AFFINE),
        ("input_projection", "memory_rnn.ih.0", _AFFINE),
        ("input_norm", "memory_rnn.ih.1", _LAYER_NORM),
        ("recurrent_projection", "memory_rnn.hh.0", _AFFINE),
        ("recurrent_norm", "memory_rnn.hh.1", _LAYER_NORM),
        ("cell_norm", "memory_rnn.c_norm", _LAYER_NORM),
    ]
    block_weights = [
        ("input_projection", "0", _AFFINE),
        ("input_norm", "1", _BATCH_NORM),
        ("output_projection", "4", _AFFINE),
        ("output_norm", "5", _BATCH_NORM),
    ]
    for layer, (ours, theirs, tensors) in product(range(num_layers), layer_weights):
        modules.append((f"reading_network.{layer}.{ours}", f"reader.{layer}.{theirs}", tensors))
    for block, (ours, theirs, tensors) in product(range(num_blocks), block_weights):
        modules.append(
            (f"predict_network.residual_blocks.{block}.{ours}", f"predictor.res.res.{block}.{theirs}", tensors)
        )
    names = {
        "model.embeddings.weight": "encoder.weight",
        "lm_head.weight": "decoder.weight",
        "lm_head.bias": "decoder.bias",
    }
    for ours, theirs, tensors in modules:
        names |= {f"model.{ours}.{our_tensor}": f"{theirs}.{tensor}" for our_tensor, tensor in tensors.items()}
    return names
