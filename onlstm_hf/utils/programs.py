"""Shared parts of the command-line programs: exit codes, types and options of arguments."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

# More than any CPU runs at a time. PyTorch aborts the process where the system refuses it a thread.
MAX_THREADS = 1024


def run_program(name: str, work: Callable[[], None]) -> int:
    """Runs a program, and turns errors that its user can cause into one line on standard error.

    Args:
        name: the program, with which that line begins.
        work: what the program does. A `ValueError`, `OSError` or `ImportError` is an error of the user.

    Returns:
        The exit code: 0, or 1 after such an error, 130 after Ctrl-C, 141 if the reader of a pipe is gone (`| head`).
    """
    if sys.stderr is None:  # it was closed, and messages would go to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it is open until the process ends)
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed; send it to a file, or to /dev/null where nobody needs it")
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")
        work()
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output once more when it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _integer(kind: str, lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """The type of an argument that must be a whole number between bounds, which messages call `kind`."""
    bounds = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < lowest or (highest is not None and int(text) > highest):
            raise argparse.ArgumentTypeError(f"must be {kind} {bounds}, not {text}")
        return int(text)

    return convert


natural_number = _integer("a whole number", 0)
positive_integer = _integer("a whole number", 1)
thread_count = _integer("a number of threads", 1, MAX_THREADS)
port_number = _integer("a port", 1, 65535)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_implementation_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--implementation`, how models are computed."""
    parser.add_argument(
        "--implementation",
        default="auto",
        metavar="NAME",
        help="auto: the fastest way that fits; reference: the equations as the model's file has them; or a fast path "
        "by name (default: %(default)s)",
    )


def add_code_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--trust-remote-code`, for checkpoints whose model is neither one of this package nor of Transformers."""
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the code in the checkpoint if neither onlstm_hf nor Transformers knows its type of model",
    )


def split_weights(names: Iterable[str]) -> list[tuple[str, float]]:
    """The name and the weight of each parser: see `split_weight`.

    Raises:
        ValueError: if a parser is named twice, or a weight is no number above 0.
    """
    weighted = list(map(split_weight, names))
    places = [os.path.realpath(name) for name, _ in weighted]
    for index, (name, _) in enumerate(weighted):
        if places[index] in places[:index]:
            raise ValueError(f"{name} is named twice; NAME=2 counts a parser as two")
    return weighted


def split_weight(name: str) -> tuple[str, float]:
    """The name and the weight of one parser: `NAME`, which counts 1, or `NAME=WEIGHT`.

    Raises:
        ValueError: if the weight is no number above 0.
    """
    if "=" not in name or Path(name).exists():
        return name, 1.0
    path, _, weight = name.rpartition("=")
    try:
        value = float(weight)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"give NAME or NAME=WEIGHT, with a weight above 0, not {name}")
    return path, value
