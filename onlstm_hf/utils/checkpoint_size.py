"""Configurations that ask for more weights than a checkpoint has, refused before memory is taken for these weights."""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

# While a model is built it has more weights than its files: an untied decoder, parts that a subclass replaces.
SLACK = 10
# Models up to these sizes are not compared: they take little memory, whatever their files have.
SMALL_TENSORS, SMALL_WEIGHTS = 1_000, 1_000_000
# Arguments of `from_pretrained` that say where the files are.
LOADING_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")


def check_before_loading(
    model_class: type[PreTrainedModel], name: str | os.PathLike | None, *arguments, config=None, **options
) -> None:
    """Runs `check_size` where `model_class.from_pretrained` with these arguments will read safetensors files."""
    if name is None or arguments or options.get("state_dict") is not None or options.get("gguf_file") is not None:
        return
    hub_options = {option: options[option] for option in LOADING_OPTIONS if option in options}
    config = config if isinstance(config, model_class.config_class) else None
    check_size(name, model_class, config=config, **hub_options)


def check_size(
    name: str | os.PathLike,
    model_class: type,
    trust_remote_code: bool = False,
    config: PreTrainedConfig | None = None,
    **hub_options: Any,
) -> None:
    """Compares the sizes of a checkpoint's configuration with the headers of its safetensors files.

    The model is built without memory for its weights, and only as far as the files go. Quantised checkpoints, which
    pack their weights, and other formats are passed over.

    Args:
        name: a checkpoint folder, or a name on the Hub.
        model_class: the class that will load the model: one of models, or an Auto class of Transformers.
        trust_remote_code: see `load_checkpoint`.
        config: the configuration, if it is not to be read from the checkpoint.
        hub_options: arguments of `from_pretrained` that say where the files are, such as `revision`.

    Raises:
        ValueError: if the model would have many more weights than the files.
        OSError: if a file is missing.
    """
    files = _safetensors_files(name, hub_options)
    fields = PreTrainedConfig.get_config_dict(name, **hub_options)[0] if config is None else config.to_dict()
    if not files or fields.get("quantization_config") is not None:
        return
    num_tensors, num_weights = 0, 0
    for path in files:
        with safe_open(path, framework="pt") as file:
            shapes = [torch.Size(file.get_slice(key).get_shape()) for key in file.keys()]  # noqa: SIM118 (no mapping)
        num_tensors, num_weights = num_tensors + len(shapes), num_weights + sum(shape.numel() for shape in shapes)
    num_layers = fields.get("num_hidden_layers", 0)
    # A configuration may have a list of as many entries.
    if isinstance(num_layers, int) and num_layers > max(num_tensors, SMALL_TENSORS):
        raise _too_much(num_tensors, num_weights)
    if config is None and issubclass(model_class, PreTrainedModel):  # which refuses that of another type
        config = model_class.config_class.from_pretrained(name, **hub_options)
    elif config is None:
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code, **hub_options)
    with _limited_parameters(num_tensors, num_weights), torch.device("meta"):
        if issubclass(model_class, PreTrainedModel):
            model_class(config)
        else:
            model_class.from_config(config, trust_remote_code=trust_remote_code)


def _safetensors_files(name: str | os.PathLike, hub_options: Mapping[str, Any]) -> list[str]:
    def find(file: str) -> str | None:
        return cached_file(name, file, _raise_exceptions_for_missing_entries=False, **hub_options)

    if (path := find(SAFE_WEIGHTS_NAME)) is not None:
        return [path]
    if (index := find(SAFE_WEIGHTS_INDEX_NAME)) is None:
        return []
    shards: dict[str, Any] = json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"]
    return [cached_file(name, shard, **hub_options) for shard in sorted(set(shards.values()))]


@contextmanager
def _limited_parameters(num_tensors: int, num_weights: int) -> Iterator[None]:
    """A block in which this thread makes no modules with more parameters than `SLACK` times these numbers."""
    seen: dict[int, torch.nn.Parameter] = {}
    thread, total = threading.get_ident(), 0

    def count(_module: torch.nn.Module, _name: str, parameter: torch.nn.Parameter) -> None:
        nonlocal total
        if threading.get_ident() != thread or id(parameter) in seen:
            return
        seen[id(parameter)] = parameter
        total += parameter.numel()
        if len(seen) > max(SLACK * num_tensors, SMALL_TENSORS) or total > max(SLACK * num_weights, SMALL_WEIGHTS):
            raise _too_much(num_tensors, num_weights)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _too_much(num_tensors: int, num_weights: int) -> ValueError:
    return ValueError(
        f"its config.json asks for more than the {num_tensors:,} tensors with {num_weights:,} weights that its "
        "safetensors files have: one of them is not of this model"
    )
