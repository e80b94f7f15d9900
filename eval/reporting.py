"""What the evaluation scripts share: data in, a table and a JSON file out."""

import importlib
import os
import platform
import shlex
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType

import torch
import transformers

import onlstm_hf


def import_extra(name: str, extra: str = "train") -> ModuleType:
    """Imports a library that only training and evaluation need.

    Raises:
        ImportError: where it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'this needs {name}: pip install "onlstm_hf[{extra}]"') from error


def load_column(dataset: str, config: str | None, split: str, column: str) -> list[str]:
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


def describe_run(script: str, arguments: Sequence[str]) -> dict:
    """The command, date and versions that a results file records."""
    return {
        "command": shlex.join(["python", f"eval/{script}", *arguments]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {
            "onlstm_hf": onlstm_hf.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with spaces between them, the first one flush left, the others right. An empty row stays empty."""
    filled = [row for row in (header, *rows) if row]
    widths = [max(len(row[column]) for row in filled) for column in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
