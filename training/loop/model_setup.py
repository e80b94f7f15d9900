"""Models of types that a recipe brings along, and configurations with a recipe's changes."""

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

from onlstm_hf.models.state import RecurrentPreTrainedModel
from onlstm_hf.registration import MODEL_CLASSES
from onlstm_hf.utils.files import fingerprint


def run_model_code(path: str) -> None:
    """Imports a file, as a module of its name, that registers a new type of model with the Auto classes.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if another module has its name, or it cannot be run.
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
    try:
        spec.loader.exec_module(sys.modules[name])
    except (Exception, SystemExit) as error:  # whatever a user's code may do
        del sys.modules[name]
        # The interpreter's own last line: the type of the error, what it says, and of a syntax error the place.
        reason = traceback.format_exception_only(error)[-1].strip()
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
        at = getattr(error, "lineno", None) or (lines[-1] if lines else 1)
        raise ValueError(f"the model_code {path} cannot be run: {reason} (line {at})") from error


def code_fingerprint(path: str | None) -> dict[str, str]:
    """The `fingerprint` of a recipe's `model_code` by its name, where there is some."""
    if path is None:
        return {}
    return {"lines of the model_code": fingerprint([Path(path).read_text(encoding="utf-8", errors="surrogateescape")])}


def trained_class(
    model_type: str, mapping: Mapping[type, type | tuple[type, ...]], takes_pairs: bool = False
) -> type[PreTrainedModel]:
    """The model of a type that the loop trains, from the `mapping` of an Auto class.

    Raises:
        ValueError: if the type has none, or none that classifies pairs or single sequences as `takes_pairs` asks.
    """

    def find(config_class: type) -> type[PreTrainedModel] | None:
        registered = mapping.get(config_class, ())
        for found in registered if isinstance(registered, tuple) else (registered,):
            if issubclass(found, RecurrentPreTrainedModel) and found.takes_pairs == takes_pairs:
                return found
        return None

    model_class = find(CONFIG_MAPPING[model_type]) if model_type in CONFIG_MAPPING else None
    if model_class is None:
        own = ", ".join(config.model_type for config in MODEL_CLASSES if find(config))
        raise ValueError(
            f'models of type "{model_type}" cannot be trained here: the model_type must be one of {own}, or one that '
            f"--model_code registers, with a class that derives from {RecurrentPreTrainedModel.__name__} and has "
            f"takes_pairs = {takes_pairs}"
        )
    return model_class


def choose_implementation(model: PreTrainedModel, implementation: str) -> None:
    """Sets how a model is computed, see `set_implementation` of the models; others have `"auto"` alone."""
    if hasattr(model, "set_implementation"):
        model.set_implementation(implementation)
    elif implementation != "auto":
        raise ValueError(f'models of type "{model.config.model_type}" have no implementation {implementation!r}')


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
