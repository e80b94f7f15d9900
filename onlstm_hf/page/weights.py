"""Writes the weights file of a checkpoint, which `static/model/tensors.js` reads."""

import zlib
from bisect import bisect_left
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..utils.iteration import progress_bar
from .rounding import calibrate, choose_limits, round_rows

# Target size of a weights file. Small models need less; large models get enough to keep most of their trees.
MAX_BYTES = 8_820_000
LEAST_BYTES_PER_WEIGHT, MOST_BYTES_PER_WEIGHT = 1.05, 1.25
COARSENESSES = [step / 64 for step in range(-8 * 64, 8 * 64)]
GZIP = 16 + zlib.MAX_WBITS  # selects the gzip container in zlib


def page_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Returns the tensors for the page, as used in evaluation, by their names without the prefix `model.`.

    It raises a `ValueError` for a model that the page does not support.
    """
    config = model.config
    if config.num_softmaxes > 1:
        raise ValueError(f"the page supports models with one softmax, not {config.num_softmaxes}")
    if not isinstance(config.eos_token_id, int):
        hint = "write the id of the tokenizer into its config.json"
        raise ValueError(f"the page needs one <eos>, but the model's eos_token_id is {config.eos_token_id}: {hint}")
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
    """Writes the weights of a language model to a gzip file.

    `precision` is `"float32"`, or `"int8"`: matrices as integers of 8 bits, or more for rows that affect the
    distances, with one scale per row. For errors see `page_tensors`.

    Returns:
        For each tensor, in the order of the file, its `name`, `shape` and `dtype`, `"integer"` or `"float32"`.
    """
    tensors = page_tensors(model)
    if precision not in ("int8", "float32"):
        raise ValueError(f"precision must be int8 or float32, not {precision!r}")
    matrices = _rounded_matrices(model, tensors) if precision == "int8" else {}
    path.write_bytes(_packed(tensors, matrices))
    return [
        {"name": name, "shape": list(tensor.shape), "dtype": "integer" if name in matrices else "float32"}
        for name, tensor in tensors.items()
    ]


def _rounded_matrices(
    model: PreTrainedModel, tensors: dict[str, torch.Tensor]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Returns integers and scales of each matrix, as precise as the target file size allows."""
    matrices = {name: tensor for name, tensor in tensors.items() if tensor.dim() > 1}
    num_weights = sum(matrix.numel() for matrix in matrices.values())
    max_bytes = min(max(MAX_BYTES, LEAST_BYTES_PER_WEIGHT * num_weights), MOST_BYTES_PER_WEIGHT * num_weights)
    moments, sensitivities = calibrate(model)

    def fits(coarseness: float) -> bool:
        limits = choose_limits(sensitivities, coarseness)
        nearest = {name: round_rows(matrix, limits[name]) for name, matrix in matrices.items()}
        return len(_packed(tensors, nearest)) <= max_bytes

    coarseness = COARSENESSES[bisect_left(COARSENESSES, True, hi=len(COARSENESSES) - 1, key=fits)]
    limits = choose_limits(sensitivities, coarseness)
    return {
        name: round_rows(matrix, limits[name], moments.get(name))
        for name, matrix in progress_bar(matrices.items(), description="weights", unit="matrix")
    }


def _packed(tensors: dict[str, torch.Tensor], matrices: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> bytes:
    """Returns a gzip file of all tensors; of integer matrices the scales, then all low bytes, then all high bytes.

    An integer is `256 * high + low`, both signed. The high bytes of 8-bit rows are 0, which compresses well.
    """
    # Weights have no repeated phrases, only frequent bytes and runs of zeros.
    packer = zlib.compressobj(level=6, wbits=GZIP, strategy=zlib.Z_RLE)
    packed = []
    for name, tensor in tensors.items():
        parts = [tensor]
        if name in matrices:
            integers, scales = matrices[name]
            high = (integers + 128) >> 8
            parts = [scales, (integers - 256 * high).char(), high.char()]
        content = b"".join(part.numpy().tobytes() for part in parts)
        packed.append(packer.compress(content + bytes(-len(content) % 4)))
    return b"".join(packed) + packer.flush()
