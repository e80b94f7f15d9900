"""Conversion of the authors' state dicts, whose tensors have other names and another order of gates."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch

from ..models.modeling_onlstm import ONLSTMForCausalLM
from ..models.modeling_prpn import PRPNForCausalLM
from ..utils.files import read_text_file

# The authors stack the rows of the gates as [master input, master forget, output, cell candidate, input, forget]; ours
# are [master input, master forget, cell candidate, input, forget, output] (see models/modeling_onlstm.py).
_ORIGINAL_GATE_OF_OURS = (1, 2, 3, 0)

# The authors' name of each of our modules; `N` is the number of a layer or residual block.
_MODULES = {
    "onlstm": {"layers.N.input_projection": "rnn.cells.N.ih.0", "layers.N.recurrent_projection": "rnn.cells.N.hh"},
    "prpn": {
        "parsing_network.convolution": "parser.gate.1",
        "parsing_network.norm": "parser.gate.2",
        "parsing_network.distance_convolution": "parser.gate.5",
        "reading_network.N.key_projection": "reader.N.projector_summ.1",
        "reading_network.N.input_projection": "reader.N.memory_rnn.ih.0",
        "reading_network.N.input_norm": "reader.N.memory_rnn.ih.1",
        "reading_network.N.recurrent_projection": "reader.N.memory_rnn.hh.0",
        "reading_network.N.recurrent_norm": "reader.N.memory_rnn.hh.1",
        "reading_network.N.cell_norm": "reader.N.memory_rnn.c_norm",
        "predict_network.key_projection": "predictor.projector_pred.1",
        "predict_network.output_projection": "predictor.ffd.1",
        "predict_network.output_norm": "predictor.ffd.2",
        "predict_network.residual_blocks.N.input_projection": "predictor.res.res.N.0",
        "predict_network.residual_blocks.N.input_norm": "predictor.res.res.N.1",
        "predict_network.residual_blocks.N.output_projection": "predictor.res.res.N.4",
        "predict_network.residual_blocks.N.output_norm": "predictor.res.res.N.5",
    },
}

# Our name and the authors' name of each tensor of a module.
_TENSORS = {
    "affine": {"weight": "weight", "bias": "bias"},
    "layer norm": {"weight": "gamma", "bias": "beta"},
    "batch norm": {name: name for name in ("weight", "bias", "running_mean", "running_var")},
}


def convert_original_state_dict(
    state_dict: Mapping[str, torch.Tensor], model_type: str = "onlstm", weight_dropout: float = 0.45, **config_options
) -> ONLSTMForCausalLM | PRPNForCausalLM:
    """Builds a model from a state dict of the authors' code (github.com/yikangshen/Ordered-Neurons, `RNNModel`, or
    github.com/yikangshen/PRPN, `PRPN`).

    The tensors determine the vocabulary size, the layers and their sizes, the chunk size or the look-back, and whether
    the decoder is tied to the embedding.

    Args:
        state_dict: tensors by the authors' names; `decoder.weight` is needed only if the decoder is untied.
        model_type: `"onlstm"` or `"prpn"`.
        weight_dropout: the `wdrop` of an ON-LSTM's training, which the tensors do not show. Evaluation multiplies
            the recurrent weights by `1 - weight_dropout`.
        config_options: other configuration fields, such as dropouts or `eos_token_id`. The tensors of a PRPN do not
            show `num_slots`, `resolution` and `hard`, by default 15, 0.1 and `True`.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: if the model type is unknown, or tensors are missing, unexpected, not finite or inconsistent.
    """
    if model_type not in _MODULES:
        raise ValueError(f'model_type must be "onlstm" or "prpn", not {model_type!r}')
    original_names = _original_names(state_dict, model_type)
    expected = set(original_names.values())
    missing = expected - {"decoder.weight"} - set(state_dict)
    unexpected = {name for name in state_dict if not name.endswith(".num_batches_tracked")} - expected
    for names, problem in ((missing, "missing"), (unexpected, "unexpected")):
        if names:
            raise ValueError(
                f'not a state dict of type "{model_type}" of the authors\' code: {problem} {", ".join(sorted(names))}'
            )
    vocab_size, embedding_size = _shape(state_dict, "encoder.weight", 2)
    decoder = state_dict.get("decoder.weight")
    fields = {
        "vocab_size": vocab_size,
        "embedding_size": embedding_size,
        "tie_word_embeddings": decoder is None or torch.equal(decoder, state_dict["encoder.weight"]),
    }
    if model_type == "onlstm":
        model_class = ONLSTMForCausalLM
        fields |= {"weight_dropout": weight_dropout, **_onlstm_fields(state_dict)}
    else:
        model_class = PRPNForCausalLM
        fields |= _prpn_fields(state_dict)
    config = model_class.config_class(**(fields | config_options))

    state_dict = {"decoder.weight": state_dict["encoder.weight"], **state_dict}
    converted = {}
    with torch.device("meta"):  # inconsistent sizes of two small tensors could imply a huge third one
        parameters = model_class(config).state_dict()
    for name, parameter in parameters.items():
        tensor = state_dict[original_names[name]]
        if tensor.shape != parameter.shape:
            shapes = f"should be {list(parameter.shape)}, but is {list(tensor.shape)}"
            raise ValueError(f"the tensors do not fit together: {original_names[name]} {shapes}")
        if not tensor.isfinite().all():
            raise ValueError(f"{original_names[name]} contains NaN or infinity")
        converted[name] = _reorder_gates(tensor, config.chunk_size) if ".layers." in name else tensor
    model = model_class(config)
    model.load_state_dict(converted)
    return model.eval()


def _original_names(state_dict: Mapping[str, torch.Tensor], model_type: str) -> dict[str, str]:
    """Returns the authors' name of each of our tensors."""
    names = {
        "model.embeddings.weight": "encoder.weight",
        "lm_head.weight": "decoder.weight",
        "lm_head.bias": "decoder.bias",
    }
    for ours, theirs in _MODULES[model_type].items():
        kind = "affine" if "norm" not in ours else "layer norm" if "reading" in ours else "batch norm"
        number = 1
        if ".N." in theirs:
            number = max(_count(state_dict, theirs.partition(".N.")[0]), 0 if "residual" in ours else 1)
        for index, (our_tensor, their_tensor) in product(map(str, range(number)), _TENSORS[kind].items()):
            our_module, their_module = ours.replace("N", index), theirs.replace("N", index)
            names[f"model.{our_module}.{our_tensor}"] = f"{their_module}.{their_tensor}"
    return names


def _count(state_dict: Mapping[str, torch.Tensor], prefix: str) -> int:
    """Returns the number of numbered layers whose tensor names begin with a prefix."""
    return len({match[1] for name in state_dict if (match := re.match(rf"{re.escape(prefix)}\.(\d+)\.", name))})


def _onlstm_fields(state_dict: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    num_layers = _count(state_dict, "rnn.cells")
    rows, hidden_size = _shape(state_dict, "rnn.cells.0.hh.weight", 2)
    num_chunks = max(1, rows // 2 - 2 * hidden_size)
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "layer_sizes": [_shape(state_dict, f"rnn.cells.{layer}.hh.weight", 2)[1] for layer in range(num_layers)],
        "chunk_size": hidden_size // num_chunks,
        "parse_layer": min(1, num_layers - 1),
    }


def _prpn_fields(state_dict: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    hidden_size, _, width = _shape(state_dict, "parser.gate.1.weight", 3)
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": _count(state_dict, "reader"),
        "num_residual_blocks": _count(state_dict, "predictor.res.res"),
        "lookback": width - 1,
    }


def _shape(state_dict: Mapping[str, torch.Tensor], name: str, num_dimensions: int) -> torch.Size:
    shape = state_dict[name].shape
    if len(shape) != num_dimensions:
        raise ValueError(f"{name} must have {num_dimensions} dimensions, not the shape {list(shape)}")
    return shape


def _reorder_gates(tensor: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """Reorders the gate rows of one of the authors' tensors to our order."""
    num_chunks = len(tensor) // (2 + 4 * chunk_size)
    masters, *gates = tensor.split([2 * num_chunks] + 4 * [num_chunks * chunk_size])
    return torch.cat([masters, *(gates[index] for index in _ORIGINAL_GATE_OF_OURS)])


def original_vocabulary(files: Sequence[str | os.PathLike]) -> list[str]:
    """Returns the words by id in the authors' code: in order of first appearance, with an `<eos>` after each line.

    The files are training, validation and test text, in this order; for errors see `read_text_file`.
    """
    vocabulary: dict[str, None] = {}
    for path in files:
        for line in read_text_file(path):
            vocabulary.update(dict.fromkeys([*line.split(), "<eos>"]))
    return list(vocabulary)
