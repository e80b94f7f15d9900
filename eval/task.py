"""The frame of a task's script: its command line, its results file, its errors."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from transformers import PreTrainedModel

from onlstm_hf.utils.programs import run_program
from onlstm_hf.utils.results_file import write_results


def task_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the option `--output`, whose help begins with the script's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FILE", help="results as JSON; an older file is replaced")
    return parser


def run_task(
    script: str,
    parser: argparse.ArgumentParser,
    task: Callable[[argparse.Namespace], dict],
    arguments: Sequence[str] | None,
) -> int:
    """Runs a task and writes its results where `--output` says so.

    Args:
        script: its path in a checkout, such as `eval/evaluate_lm.py`.
        parser: made by `task_parser`.
        task: prints a table and returns the results.
        arguments: of the command line; `None`: those of this process.

    Returns:
        The exit code, see `run_program`.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(arguments)

    def work() -> None:
        check_writable(options.output)
        results = task(options)
        if options.output:
            write_results(options.output, results, script, arguments)

    return run_program(Path(script).name, work)


def check_writable(*paths: str | os.PathLike | None) -> None:
    """Raises an `OSError` where a file could not be written after long work."""
    for path in paths:
        if path is not None and not Path(path).resolve().parent.is_dir():
            raise FileNotFoundError(f"cannot write {path}: its folder does not exist")
        if path is not None and Path(path).is_dir():
            raise IsADirectoryError(f"cannot write {path}: it is a folder")


def describe_checkpoint(name: str, model: PreTrainedModel) -> dict:
    """Returns what a results file says of a checkpoint: `model` (its name), `num_parameters` and `seed`.

    The seed is that of the `results.json` in the folder, where the checkpoint was released, or beside the folder,
    where it was trained; `None` where neither tells.
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


def import_extra(name: str, extra: str = "train") -> ModuleType:
    """Imports a library that only training and evaluation need.

    Raises:
        ImportError: where it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'this needs {name}: pip install -e ".[{extra}]" in the checkout') from error
