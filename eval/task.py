"""Common parts of evaluation scripts: command line, results file, errors."""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.files import check_writable
from onlstm_hf.utils.programs import add_code_option, add_implementation_option, run_program
from onlstm_hf.utils.results_file import write_results


def task_parser(description: str, has_results: bool = True) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with the script's docstring; with `has_results` it has `--output`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if has_results:
        parser.add_argument("--output", metavar="FILE", help="write the results as JSON; an existing file is replaced")
    return parser


def run_task(
    script: str,
    build_parser: Callable[[], argparse.ArgumentParser],
    task: Callable[[argparse.Namespace], dict | None],
    arguments: Sequence[str] | None = None,
) -> int:
    """Runs a task, writes its results to the file of `--output`, and returns the exit code of `run_program`.

    `script` is a path such as `eval/evaluate_lm.py`; `task` prints a table and returns the results.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    output = getattr(options, "output", None)

    def work() -> None:
        check_writable(output)
        results = task(options)
        if output:
            write_results(output, results, script, arguments)

    return run_program(Path(script).name, work)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `load_model` reads."""
    add_code_option(parser)
    add_implementation_option(parser)


def load_model(
    name: str, options: argparse.Namespace, any_causal_model: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a checkpoint and its tokenizer, see `load_checkpoint`."""
    trusted, implementation = options.trust_remote_code, options.implementation
    return load_checkpoint(name, any_causal_model, trust_remote_code=trusted, implementation=implementation)


def describe_checkpoint(name: str, model: PreTrainedModel) -> dict:
    """Returns the entry of a checkpoint in results files: `model` (its name), `num_parameters` and `seed`.

    The seed comes from the `results.json` in the folder (a released model) or beside it (a training run); it is `None`
    without such a file.
    """
    return {"model": name, "num_parameters": model.num_parameters(), "seed": _training_seed(Path(name))}


def _training_seed(folder: Path) -> int | None:
    for path in (folder / "results.json", folder.parent / "results.json"):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            return results.get("training", results)["recipe"]["seed"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no file, or one of another program
            continue
    return None


def import_extra(name: str, extra: str = "train") -> ModuleType:
    """Imports a library of an optional extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'this needs {name}: pip install -e ".[{extra}]" in the checkout') from error
