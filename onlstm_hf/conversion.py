"""Brings checkpoints of the authors' code into this package."""

from collections.abc import Mapping

import torch

from .configuration_onlstm import ONLSTMConfig
from .modeling_onlstm import ONLSTMForCausalLM

# The authors stack the gates' rows as [master input, master forget, output, cell candidate, input, forget]; here the
# order is [master input, master forget, cell candidate, input, forget, output] (see ordered_neurons.py).
_ORIGINAL_GATE_OF_OURS = (1, 2, 3, 0)


def convert_original_state_dict(
    state_dict: Mapping[str, torch.Tensor], model_type: str = "onlstm", weight_dropout: float = 0.45, **config_options
) -> ONLSTMForCausalLM:
    """Builds a model from a state dict of the authors' code (github.com/yikangshen/Ordered-Neurons, `RNNModel`).

    Vocabulary, layer sizes, chunk size and tying are read off the tensors.

    Args:
        state_dict: the authors' names: `encoder.weight`, `rnn.cells.N.ih.0.weight`, `rnn.cells.N.hh.weight`, their
            biases, `decoder.bias` and, where the decoder is not tied, `decoder.weight`.
        model_type: `"onlstm"`.
        weight_dropout: the `wdrop` the model was trained with. It is not stored in the tensors, and evaluation
            multiplies the recurrent weights by one minus it.
        config_options: further fields of `ONLSTMConfig`, such as the other dropouts or `eos_token_id`.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: if the model type is unknown, or tensors are missing, unexpected, or do not fit together.
    """
    if model_type != "onlstm":
        raise ValueError(f'model_type must be "onlstm", not {model_type!r}')
    config = _read_config(state_dict, weight_dropout, config_options)
    converted = {"model.embeddings.weight": state_dict["encoder.weight"], "lm_head.bias": state_dict["decoder.bias"]}
    converted["lm_head.weight"] = state_dict.get("decoder.weight", state_dict["encoder.weight"])
    for layer, size in enumerate(config.layer_sizes):
        for original, ours in (("ih.0", "input_projection"), ("hh", "recurrent_projection")):
            for kind in ("weight", "bias"):
                tensor = state_dict[f"rnn.cells.{layer}.{original}.{kind}"]
                converted[f"model.layers.{layer}.{ours}.{kind}"] = _reorder_gates(tensor, size)

    unknown = set(state_dict) - _expected_names(config.num_hidden_layers) - {"decoder.weight"}
    if unknown:
        raise ValueError(f"not a state dict of the authors' ON-LSTM: unexpected {', '.join(sorted(unknown))}")
    model = ONLSTMForCausalLM(config)
    expected = model.state_dict()
    for name, tensor in converted.items():
        if expected[name].shape != tensor.shape:
            raise ValueError(
                f"the tensors do not fit together: {name} should be {list(expected[name].shape)}, "
                f"but is {list(tensor.shape)}"
            )
    model.load_state_dict(converted)
    return model.eval()


def _expected_names(num_layers: int) -> set[str]:
    return {"encoder.weight", "decoder.bias"} | {
        f"rnn.cells.{layer}.{module}.{kind}"
        for layer in range(num_layers)
        for module in ("ih.0", "hh")
        for kind in ("weight", "bias")
    }


def _read_config(state_dict: Mapping[str, torch.Tensor], weight_dropout: float, options: dict) -> ONLSTMConfig:
    num_layers = 0
    while f"rnn.cells.{num_layers}.hh.weight" in state_dict:
        num_layers += 1
    missing = _expected_names(max(num_layers, 1)) - set(state_dict)
    if missing:
        raise ValueError(f"not a state dict of the authors' ON-LSTM: missing {', '.join(sorted(missing))}")

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


def _reorder_gates(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Brings the rows of one of the authors' gate maps into our order."""
    masters, gates = tensor[: -4 * size], tensor[-4 * size :].chunk(4)
    return torch.cat([masters, *(gates[index] for index in _ORIGINAL_GATE_OF_OURS)])
