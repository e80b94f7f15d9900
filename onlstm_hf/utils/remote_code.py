"""Code that is saved with a checkpoint, so that it loads without this package.

The files of a model are in one folder and import each other only by `from .name import ...`, which Transformers'
loader of remote code requires. They are copied unchanged.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import CONFIG_NAME, logging

# The class of `pipeline("constituency-parsing")` in the file of `parse`.
PIPELINES = {
    "constituency-parsing": {
        "impl": "parsing.ConstituencyParsingPipeline",
        "pt": ["AutoModelForCausalLM"],
        "type": "text",
    }
}

# Arguments of `save_pretrained` that are forwarded to `push_to_hub`.
HUB_OPTIONS = ("repo_id", "commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags")

logger = logging.get_logger(__name__)


def model_code(model_class: type) -> tuple[dict[str, Path], dict[str, dict]]:
    """Returns the code that a checkpoint of a model carries, from this package or from the user's file.

    Returns:
        The files by name, and the entries of `config.json` that lead the Auto classes and `pipeline` to their classes.
        `auto_map` also names the other classes of the model's file with its configuration.
    """
    config_class, module = model_class.config_class, sys.modules[model_class.__module__]
    sources = _source(model_class), _source(config_class)
    files = [file for source in sources for file in (source, *map(Path, get_relative_import_files(source)))]
    classes = [
        value
        for value in (*vars(module).values(), model_class)  # the last class wins if two share an Auto class
        if getattr(value, "__module__", None) == module.__name__
        and getattr(value, "config_class", None) is config_class
        and getattr(value, "auto_class_name", None)
    ]
    auto_map = {"AutoConfig": config_class} | {cls.auto_class_name: cls for cls in classes}
    entries = {"auto_map": {name: f"{_source(cls).stem}.{cls.__name__}" for name, cls in auto_map.items()}}
    by_name = {file.name: file for file in sorted(files)}
    if "parsing.py" in by_name and getattr(model_class, "induces_trees", False):
        entries["custom_pipelines"] = PIPELINES
    return by_name, entries


def refer_to(entries: dict[str, dict], config_file: Path) -> str:
    """Returns the text of a `config.json` with its references to code replaced by these entries."""
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config.pop("custom_pipelines", None)
    return json.dumps(config | entries, indent=2, sort_keys=True) + "\n"


def save_with_code(
    model: PreTrainedModel,
    save: Callable,
    save_directory: str | os.PathLike,
    is_main_process: bool = True,
    state_dict: dict[str, torch.Tensor] | None = None,
    push_to_hub: bool = False,
    **options,
) -> None:
    """Saves a model with its weights and code, and optionally pushes both; see `save_pretrained` for the arguments.

    `save` is the model's `save_pretrained` from Transformers, which itself copies code that came from a checkpoint.
    """
    hub_options = {name: options.pop(name) for name in HUB_OPTIONS if name in options} if push_to_hub else {}
    save(save_directory, is_main_process, state_dict, **options)
    config_file = Path(save_directory, CONFIG_NAME)
    # An adapter is saved without a configuration.
    if is_main_process and config_file.is_file() and not model.is_remote_code():
        module, name = type(model).__module__, type(model).__name__
        if module == "__main__" or not hasattr(sys.modules[module], name):
            logger.warning(
                f"{save_directory} does not carry the code of {name}, which is defined in {module}: to load it "
                "elsewhere, define the class in a Python file that is imported"
            )
        else:
            files, entries = model_code(type(model))
            for file_name, file in files.items():
                config_file.with_name(file_name).write_bytes(file.read_bytes())
            config_file.write_text(refer_to(entries, config_file), encoding="utf-8")
    if push_to_hub and is_main_process:
        model.push_to_hub(hub_options.pop("repo_id", Path(save_directory).name), **hub_options)


def _source(cls: type) -> Path:
    return Path(sys.modules[cls.__module__].__file__).resolve()
