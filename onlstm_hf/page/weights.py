"""The file of a checkpoint's weights, which `static/model/tensors.js` reads."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..utils.files import written_file
from ..utils.iteration import progress_bar
from .rounding import input_moments, round_rows

PRECISIONS = ("int8", "float32")
# Largest file of a checkpoint: if 8 bits leave room, important rows get 16 bits.
MAX_BYTES = 8_750_000


def page_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors that the page computes with, as in evaluation, by their names in the model without the head.

    Raises:
        ValueError: for a model that the page cannot compute.
    """
    config = model.config
    if config.model_type not in ("onlstm", "prpn", "rnn"):
        raise ValueError(
            f'the page computes models of type "onlstm", "prpn" and "rnn", not "{config.model_type}"; its equations '
            "are in onlstm_hf/page/static/model/"
        )
    if config.num_softmaxes > 1:
        raise ValueError(f"the page computes models with one softmax, not {config.num_softmaxes}")
    tensors = {}
    for name, tensor in model.state_dict().items():
        name = name.removeprefix("model.")
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        tensor = tensor.detach().float().cpu()
        if name.startswith("layers.") and name.endswith("recurrent_projection.weight"):
            tensor = tensor * (1 - config.weight_dropout)  # drop-connect in evaluation
        tensors[name] = tensor.flatten(1) if tensor.dim() > 1 else tensor
    return tensors


def write_weights(model: PreTrainedModel, path: Path, precision: str = "int8") -> list[dict]:
    """Writes the weights of a language model.

    Args:
        model: the model, in evaluation mode.
        path: of the file.
        precision: `"int8"`, matrices as 8-bit integers with a scale for each row; or `"float32"`.

    Returns:
        For each tensor, in the order of the file, its `name`, `shape` and `dtype`; with 8 bits also `fine`, the number
        of its first rows that have 16.

    Raises:
        ValueError: see `page_tensors`.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    tensors = page_tensors(model)
    fine = _fine_rows(model, tensors) if precision == "int8" else {}
    moments = input_moments(model) if precision == "int8" else {}
    descriptions = []
    with written_file(path, binary=True) as file:
        for name, tensor in progress_bar(tensors.items(), description="weights", unit="tensor"):
            description = {"name": name, "shape": list(tensor.shape)}
            if precision == "float32" or tensor.dim() < 2:
                description["dtype"] = "float32"
                content = _bytes(tensor.float())
            else:
                num_fine = fine.get(name, 0)
                integers, scales = round_rows(tensor, num_fine, moments.get(name))
                description |= {"dtype": "int8", "fine": num_fine}
                content = _bytes(scales) + _bytes(integers[:num_fine].short()) + _bytes(integers[num_fine:].char())
            file.write(content + bytes(-len(content) % 4))
            descriptions.append(description)
    return descriptions


def _fine_rows(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    """Returns the number of 16-bit rows of each matrix: those that make distances first, then the frequent words."""
    config = model.config
    if not model.induces_trees:
        return {}
    if config.model_type == "onlstm":
        prefix = f"layers.{config.parse_layer}"
        num_master_gates = 2 * (config.layer_sizes[config.parse_layer] // config.chunk_size)
        first = dict.fromkeys(
            (f"{prefix}.input_projection.weight", f"{prefix}.recurrent_projection.weight"), num_master_gates
        )
    else:
        first = {name: len(tensor) for name, tensor in tensors.items() if name.startswith("parsing_network.")}
    first = {name: count for name, count in first.items() if tensors[name].dim() > 1}
    num_bytes = sum(
        4 * tensor.numel() if tensor.dim() < 2 else 4 * len(tensor) + tensor.numel() for tensor in tensors.values()
    )
    num_bytes += sum(count * tensors[name].shape[1] for name, count in first.items())
    embeddings = tensors["embeddings.weight"]
    num_words = max(MAX_BYTES - num_bytes, 0) // embeddings.shape[1]  # ids go by falling frequency
    return first | {"embeddings.weight": min(num_words, len(embeddings))}


def _bytes(tensor: torch.Tensor) -> bytes:
    array = tensor.contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
