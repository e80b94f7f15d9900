"""Models of this package from state dicts of the authors' code, whose tensors have other names and orders."""

import os
import re
from collections.abc import Mapping, Sequence

import torch

from ..models.configuration_onlstm import ONLSTMConfig
from ..models.modeling_onlstm import ONLSTMForCausalLM
from ..models.modeling_prpn import PRPNForCausalLM
from ..utils.files import read_text_file
from .state_dicts_prpn import read_original_prpn

# The authors stack the gates' rows as [master input, master forget, output, cell candidate, input, forget]; here the
# order is [master input, master forget, cell candidate, input, forget, output] (see models/modeling_onlstm.py).
_ORIGINAL_GATE_OF_OURS = (1, 2, 3, 0)


def convert_original_state_dict(
    state_dict: Mapping[str, torch.Tensor], model_type: str = "onlstm", weight_dropout: float = 0.45, **config_options
) -> ONLSTMForCausalLM | PRPNForCausalLM:
    """Builds a model from a state dict of the authors' code (github.com/yikangshen/Ordered-Neurons, `RNNModel`, or
    github.com/yikangshen/PRPN, `PRPN`).

    The tensors show the size of the vocabulary, the layers and their sizes, the chunk size or the look-back, and
    whether the decoder is tied to the embedding.

    Args:
        state_dict: tensors by the authors' names. ON-LSTM: `encoder.weight`, `rnn.cells.N.ih.0.weight`,
            `rnn.cells.N.hh.weight`, their biases, `decoder.bias` and, where the decoder is not tied, `decoder.weight`.
            PRPN: those of `encoder`, `parser`, `reader.N`, `predictor` and `decoder`.
        model_type: `"onlstm"` or `"prpn"`.
        weight_dropout: the `wdrop` that an ON-LSTM was trained with. It is not stored in the tensors, and evaluation
            multiplies the recurrent weights by one minus it.
        config_options: further fields of the configuration, such as the other dropouts or `eos_token_id`. The
            tensors of a PRPN do not tell `num_slots`, `resolution` and `hard`, by default 15, 0.1 and `True`.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: if the model type is unknown, or tensors are missing, unexpected, not finite, or do not
            fit together.
    """
    if model_type == "onlstm":
        config = _read_config(state_dict, weight_dropout, config_options)
        original_names = _original_names(config.num_hidden_layers)
        unknown = set(state_dict) - set(original_names.values())
        if unknown:
            raise ValueError(f"not a state dict of the authors' ON-LSTM: unexpected {', '.join(sorted(unknown))}")
        model_class = ONLSTMForCausalLM
    elif model_type == "prpn":
        config, original_names = read_original_prpn(state_dict, **config_options)
        model_class = PRPNForCausalLM
    else:
        raise ValueError(f'model_type must be "onlstm" or "prpn", not {model_type!r}')

    state_dict = {"decoder.weight": state_dict["encoder.weight"], **state_dict}
    converted = {}
    with torch.device("meta"):  # two small tensors that do not fit together can make a third one huge
        parameters = model_class(config).state_dict()
    for name, parameter in parameters.items():
        tensor = state_dict[original_names[name]]
        if tensor.shape != parameter.shape:
            raise ValueError(
                f"the tensors do not fit together: {original_names[name]} should be {list(parameter.shape)}, "
                f"but is {list(tensor.shape)}"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{original_names[name]} contains NaN or infinity")
        converted[name] = _reorder_gates(tensor, config.chunk_size) if ".layers." in name else tensor
    model = model_class(config)
    model.load_state_dict(converted)
    return model.eval()


def _original_names(num_layers: int) -> dict[str, str]:
    """The authors' name of each of our tensors."""
    names = {
        "model.embeddings.weight": "encoder.weight",
        "lm_head.weight": "decoder.weight",
        "lm_head.bias": "decoder.bias",
    }
    for layer in range(num_layers):
        for kind in ("weight", "bias"):
            names[f"model.layers.{layer}.input_projection.{kind}"] = f"rnn.cells.{layer}.ih.0.{kind}"
            names[f"model.layers.{layer}.recurrent_projection.{kind}"] = f"rnn.cells.{layer}.hh.{kind}"
    return names


def _read_config(state_dict: Mapping[str, torch.Tensor], weight_dropout: float, options: dict) -> ONLSTMConfig:
    num_layers = len({match[1] for name in state_dict if (match := re.match(r"rnn\.cells\.(\d+)\.", name))}) or 1
    missing = set(_original_names(num_layers).values()) - {"decoder.weight"} - set(state_dict)
    if missing:
        raise ValueError(f"not a state dict of the authors' ON-LSTM: missing {', '.join(sorted(missing))}")
    for name in ("encoder.weight", *(f"rnn.cells.{layer}.hh.weight" for layer in range(num_layers))):
        if state_dict[name].dim() != 2:
            raise ValueError(f"{name} must be a matrix, not of shape {list(state_dict[name].shape)}")

    layer_sizes, chunk_sizes = [], set()
    for layer in range(num_layers):
        rows, size = state_dict[f"rnn.cells.{layer}.hh.weight"].shape
        num_chunks = (rows - 4 * size) // 2
        if num_chunks < 1 or rows != 4 * size + 2 * num_chunks or size % num_chunks:
            raise ValueError(f"rnn.cells.{layer}.hh.weight of shape {[rows, size]} is not that of an ON-LSTM layer")
        layer_sizes.append(size)
        chunk_sizes.add(size // num_chunks)
    if len(chunk_sizes) > 1:
        raise ValueError(f"the layers differ in chunk size: {sorted(chunk_sizes)}")

    vocab_size, embedding_size = state_dict["encoder.weight"].shape
    decoder = state_dict.get("decoder.weight")
    fields = {
        "vocab_size": vocab_size,
        "embedding_size": embedding_size,
        "hidden_size": layer_sizes[0],
        "num_hidden_layers": num_layers,
        "layer_sizes": layer_sizes,
        "chunk_size": chunk_sizes.pop(),
        "weight_dropout": weight_dropout,
        "parse_layer": min(1, num_layers - 1),
        "tie_word_embeddings": decoder is None or torch.equal(decoder, state_dict["encoder.weight"]),
    }
    return ONLSTMConfig(**(fields | options))


def _reorder_gates(tensor: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """Brings the rows of one of the authors' gate maps into our order."""
    num_chunks = len(tensor) // (2 + 4 * chunk_size)
    masters, *gates = tensor.split([2 * num_chunks] + 4 * [num_chunks * chunk_size])
    return torch.cat([masters, *(gates[index] for index in _ORIGINAL_GATE_OF_OURS)])


def original_vocabulary(files: Sequence[str | os.PathLike]) -> list[str]:
    """The words in the order of their ids in the authors' code: by first appearance, with an `<eos>` after each line.

    Args:
        files: the training, validation and test text, in this order.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if a file is empty or not UTF-8.
    """
    vocabulary: dict[str, None] = {}
    for path in files:
        for line in read_text_file(path):
            vocabulary.update(dict.fromkeys([*line.split(), "<eos>"]))
    return list(vocabulary)
