"""Code that travels with a checkpoint, so that it loads where this package is not installed.

The files of a model lie in one folder and import one another by `from .name import ...` alone, as Transformers' loader
of remote code follows them. They are copied as they are.
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

# Entries of `config.json` that name code: the classes of Auto classes, and those of pipelines.
REFERENCES = ("auto_map", "custom_pipelines")
# The class of `pipeline("constituency-parsing")` in the file that has `parse`.
PARSING_FILE = "parsing.py"
PIPELINES = {
    "constituency-parsing": {
        "impl": "parsing.ConstituencyParsingPipeline",
        "pt": ["AutoModelForCausalLM"],
        "type": "text",
    }
}

# Arguments of `save_pretrained` that `push_to_hub` takes.
HUB_OPTIONS = ("repo_id", "commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags")

logger = logging.get_logger(__name__)


class ModelCode(NamedTuple):
    """The code of a model, as its checkpoint carries it.

    Attributes:
        files: by name the text of each file.
        references: the entries of `config.json` by which the Auto classes and `pipeline` find the classes in them.
    """

    files: dict[str, str]
    references: dict[str, dict]


def model_code(model_class: type) -> ModelCode:
    """The files that a model and its configuration need of this package, or of the user's own code.

    Args:
        model_class: a `PreTrainedModel`. `auto_map` names its siblings in the same file, which share its
            configuration, too.

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
                f"{source.name} needs {error.filename}, which is no file: code that travels lies in one folder"
            ) from error
        files |= {path.name: path.read_text(encoding="utf-8") for path in paths}
    module = sys.modules[model_class.__module__]
    classes = [
        value
        for value in (*vars(module).values(), model_class)  # where two have the same Auto class, this one has it
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
    """The text of a `config.json` with these references in the place of others."""
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
    """Saves a model with its code beside its weights, and pushes both.

    Args:
        model: the model. Code that came with a checkpoint is copied by Transformers itself.
        save: its `save_pretrained` of Transformers.
        save_directory, is_main_process, state_dict, options: see there.
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
    """Writes the code of a model into the folder of its checkpoint, and refers to it in `config.json`.

    A class that stands in no file of its own, such as one of a notebook, has no code that could be written.
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
