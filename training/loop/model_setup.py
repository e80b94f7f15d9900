"""Models of types that a recipe brings along, and configurations with a recipe's changes."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig


def run_model_code(path: str) -> None:
    """Imports a file that registers a new type of model with the Auto classes, as a module of the file's name.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if another module has its name.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no Python file {path} (model_code)")
    name, place = Path(path).stem, str(Path(path).resolve())
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) != place:
            raise ValueError(f"the model_code {path} needs another file name: there is a module {name} already")
        return
    spec = importlib.util.spec_from_file_location(name, place)
    # Transformers looks there for the file that a checkpoint is to carry.
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def changed_config(known: PreTrainedConfig, fields: dict[str, Any], changes: dict[str, Any]) -> PreTrainedConfig:
    """A configuration of the class of `known` with `fields`, and over these the `changes` of a recipe.

    Raises:
        ValueError: if there is no such field, or its value is out of its range.
    """
    unknown = sorted(set(changes) - set(known.to_dict()))
    if unknown:
        raise ValueError(f"{type(known).__name__} has no fields {', '.join(unknown)}")
    try:
        return type(known)(**{**fields, **changes})
    except TypeError as error:
        raise ValueError(f"the fields of the model do not fit {type(known).__name__}: {error}") from error
