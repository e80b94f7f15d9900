"""What the evaluation scripts share: data in, and what a results file says of a checkpoint."""

import importlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

from transformers import PreTrainedModel


def import_extra(name: str, extra: str = "train") -> ModuleType:
    """Imports a library that only training and evaluation need.

    Raises:
        ImportError: where it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'this needs {name}: pip install "onlstm_hf[{extra}]"') from error


def read_string_column(dataset: str, config: str | None, split: str, column: str) -> list[str]:
    """A column of strings of a Hugging Face dataset, given by its name on the Hub or its folder.

    Raises:
        ValueError: if the dataset cannot be loaded or has no such column of strings.
    """
    datasets = import_extra("datasets")
    try:
        rows = datasets.load_dataset(dataset, config, split=split)
    except Exception as error:  # its own exceptions share no base class
        raise ValueError(f"cannot load the split {split!r} of the dataset {dataset}: {error}") from error
    if column not in rows.column_names:
        raise ValueError(f"{dataset} has no column {column!r}; its columns: {', '.join(rows.column_names)}")
    values = rows[column]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"the column {column!r} of {dataset} has entries that are no text")
    return list(values)


def check_writable(*paths: str | os.PathLike | None) -> None:
    """Raises a `FileNotFoundError` where a file could not be written after long work."""
    for path in paths:
        if path is not None and not Path(path).resolve().parent.is_dir():
            raise FileNotFoundError(f"cannot write {path}: its folder does not exist")


def read_results(path: str, tasks: Collection[str]) -> dict:
    """A results file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not of one of the tasks.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(results, dict) or results.get("task") not in tasks:
        raise ValueError(f"{path} holds no results of {' or '.join(tasks)}")
    return results


def describe_checkpoint(name: str, model: PreTrainedModel) -> dict:
    """What a results file says of a checkpoint: its name, its size, and the seed that it was trained with.

    Args:
        name: checkpoint folder, or name on the Hub.
        model: the model in it.

    Returns:
        `model`, `num_parameters` and `seed`: that of the `results.json` in the folder, where the checkpoint was
        released, or beside the folder, where it was trained; `None` where neither tells.
    """
    return {"model": name, "num_parameters": model.num_parameters(), "seed": _training_seed(Path(name))}


def _training_seed(folder: Path) -> int | None:
    for path, keys in ((folder, ("training", "recipe", "seed")), (folder.parent, ("recipe", "seed"))):
        try:
            value = json.loads((path / "results.json").read_text(encoding="utf-8"))
            for key in keys:
                value = value[key]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return value
    return None
