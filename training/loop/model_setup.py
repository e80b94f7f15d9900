"""Custom model types of recipes, model classes, and configurations with a recipe's changes."""

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
    """Imports a file that registers a new model type with the Auto classes, as a module with the name of the file."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no Python file {path} (model_code)")
    name, full_path = Path(path).stem, str(Path(path).resolve())
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) != full_path:
            raise ValueError(f"the model_code {path} needs another file name: there is a module {name} already")
        return
    spec = importlib.util.spec_from_file_location(name, full_path)
    # From sys.modules Transformers finds the source file to copy into a checkpoint.
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
    except (Exception, SystemExit) as error:  # user code can raise anything
        del sys.modules[name]
        details = "".join(traceback.format_exception(error, limit=-1))
        raise ValueError(f"the model_code {path} cannot be run: {details}") from error


def code_fingerprint(path: str | None) -> dict[str, str]:
    """Returns the `fingerprint` of a recipe's `model_code` by its name in messages, if there is one."""
    if path is None:
        return {}
    return {"lines of the model_code": fingerprint([Path(path).read_text(encoding="utf-8", errors="surrogateescape")])}


def trained_class(
    model_type: str, mapping: Mapping[type, type | tuple[type, ...]], takes_pairs: bool = False
) -> type[PreTrainedModel]:
    """Returns the trainable class of a model type from the `mapping` of an Auto class; it may have to take pairs."""

    def find(config_class: type) -> type[PreTrainedModel] | None:
        registered = mapping.get(config_class, ())
        for candidate in registered if isinstance(registered, tuple) else (registered,):
            if issubclass(candidate, RecurrentPreTrainedModel) and candidate.takes_pairs == takes_pairs:
                return candidate
        return None

    model_class = find(CONFIG_MAPPING[model_type]) if model_type in CONFIG_MAPPING else None
    if model_class is None:
        supported = ", ".join(config.model_type for config in MODEL_CLASSES if find(config))
        raise ValueError(
            f'models of type "{model_type}" cannot be trained here: the model_type must be one of {supported}, or one '
            f"of --model_code, with a {RecurrentPreTrainedModel.__name__} that has takes_pairs = {takes_pairs}"
        )
    return model_class


def changed_config(base: PreTrainedConfig, fields: dict[str, Any], changes: dict[str, Any]) -> PreTrainedConfig:
    """Returns a configuration of the class of `base` from `fields`; `changes` of a recipe override them.

    Raises a `ValueError` if a changed field does not exist, or a value is out of range.
    """
    if unknown := sorted(set(changes) - set(base.to_dict())):
        raise ValueError(f"{type(base).__name__} has no fields {', '.join(unknown)}")
    try:
        return type(base)(**{**fields, **changes})
    except TypeError as error:
        raise ValueError(f"the fields of the model do not fit {type(base).__name__}: {error}") from error
