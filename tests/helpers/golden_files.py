"""Golden files: numbers from the authors' code."""

import json
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from onlstm_hf import convert_original_state_dict


class Golden(NamedTuple):
    """A golden file: its tensors (time first), its description, and the inputs of our model (batch first)."""

    tensors: dict[str, torch.Tensor]
    description: dict
    model: PreTrainedModel
    input_ids: torch.Tensor
    labels: torch.Tensor


def load_golden(path: Path, model_type: str, **options: str) -> Golden:
    """Reads a file; `options` name entries of the authors' configuration that its tensors do not show."""
    tensors = load_file(path.with_suffix(".safetensors"))
    description = json.loads(path.with_suffix(".json").read_text())
    weights = {name.removeprefix("weight."): t for name, t in tensors.items() if name.startswith("weight.")}
    options = {ours: description["config"][theirs] for ours, theirs in options.items()}
    model = convert_original_state_dict(weights, model_type, **options)
    return Golden(tensors, description, model, tensors["input_ids"].t(), tensors["labels"].t())
