"""Code that is saved with a checkpoint, so that it loads without this package.

The files of a model are in one folder and import each other only by `from .name import ...`, which Transformers'
loader of remote code requires. They are copied unchanged.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import CONFIG_NAME, logging

# Entries of `config.json` that refer to code: of the Auto classes and of pipelines.
REFERENCES = ("auto_map", "custom_pipelines")
# The file of `parse`, and the class of `pipeline("constituency-parsing")` in it.
PARSING_FILE = "parsing.py"
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


class ModelCode(NamedTuple):
    """The code of a model, as its checkpoint carries it.

    Attributes:
        files: the text of each file by name.
        references: entries of `config.json` that lead the Auto classes and `pipeline` to the classes in the files.
    """

    files: dict[str, str]
    references: dict[str, dict]


def model_code(model_class: type) -> ModelCode:
    """Returns the files that a model and its configuration need from this package or from the user's code.

    Args:
        model_class: a `PreTrainedModel`. `auto_map` also names the classes of the same file with its configuration.

    Raises:
        ValueError: if a file imports another one from outside its folder.
    """
    config_class = model_class.config_class
    files = {}
    for source in dict.fromkeys([_source(model_class), _source(config_class)]):
        try:
            paths = [source, *map(Path, get_relative_import_files(source))]
        except FileNotFoundError as error:
            raise ValueError(
                f"{source.name} needs {error.filename}, which is no file: saved code must be in one folder"
            ) from error
        files |= {path.name: path.read_text(encoding="utf-8") for path in paths}
    module = sys.modules[model_class.__module__]
    classes = [
        value
        for value in (*vars(module).values(), model_class)  # the last class wins if two share an Auto class
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and getattr(value, "config_class", None) is config_class
        and getattr(value, "auto_class_name", None)
    ]
    auto_map = {"AutoConfig": _reference(config_class)} | {cls.auto_class_name: _reference(cls) for cls in classes}
    parses = PARSING_FILE in files and getattr(model_class, "induces_trees", False)
    references = {"auto_map": auto_map} | ({"custom_pipelines": PIPELINES} if parses else {})
    return ModelCode(dict(sorted(files.items())), references)


def refer_to(references: dict[str, dict], config: str) -> str:
    """Returns the text of a `config.json` with its references to code replaced by these."""
    entries = {name: value for name, value in json.loads(config).items() if name not in REFERENCES}
    return json.dumps(entries | references, indent=2, sort_keys=True) + "\n"


def save_with_code(
    model: PreTrainedModel,
    save: Callable,
    save_directory: str | os.PathLike,
    is_main_process: bool = True,
    state_dict: dict[str, torch.Tensor] | None = None,
    push_to_hub: bool = False,
    **options,
) -> None:
    """Saves a model with its weights and code, and optionally pushes both.

    Args:
        model: the model. Transformers itself copies code that was loaded from a checkpoint.
        save: the model's `save_pretrained` from Transformers.
        save_directory, is_main_process, state_dict, options: see `save_pretrained`.
        push_to_hub: whether to push to `repo_id`, by default the folder's name in the user's namespace.
    """
    hub_options = {name: options.pop(name) for name in HUB_OPTIONS if name in options} if push_to_hub else {}
    save(save_directory, is_main_process, state_dict, **options)
    # An adapter is saved without a configuration.
    if is_main_process and Path(save_directory, CONFIG_NAME).is_file() and not model.is_remote_code():
        write_code(type(model), save_directory)
    if push_to_hub and is_main_process:
        model.push_to_hub(hub_options.pop("repo_id", Path(save_directory).name), **hub_options)


def write_code(model_class: type, folder: str | Path) -> None:
    """Writes the code of a model into its checkpoint folder, and refers to it in `config.json`.

    Logs a warning for a class without a file to copy, such as one defined in a notebook.
    """
    module = sys.modules[model_class.__module__]
    if module.__name__ == "__main__" or not (hasattr(module, "__file__") and hasattr(module, model_class.__name__)):
        logger.warning(
            f"{folder} does not carry the code of {model_class.__name__}, which is defined in {module.__name__}: "
            "to load it elsewhere, define the class in a Python file that is imported"
        )
        return
    files, references = model_code(model_class)
    for name, text in files.items():
        (Path(folder) / name).write_bytes(text.encode())
    config_file = Path(folder) / CONFIG_NAME
    config_file.write_text(refer_to(references, config_file.read_text(encoding="utf-8")), encoding="utf-8")


def _source(cls: type) -> Path:
    return Path(sys.modules[cls.__module__].__file__).resolve()


def _reference(cls: type) -> str:
    return f"{_source(cls).stem}.{cls.__name__}"
