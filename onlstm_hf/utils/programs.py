"""Shared parts of the command-line programs: exit codes, argument types and options."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

# More than any CPU runs at a time. PyTorch aborts the process if the system refuses to create a thread.
MAX_THREADS = 1024


def run_program(name: str, work: Callable[[], None]) -> int:
    """Runs a program; for a `ValueError`, `OSError` or `ImportError` prints its name and the error on standard error.

    Returns:
        The exit code: 0, or 1 after such an error, 130 after Ctrl-C, 141 if the reader of a pipe is gone (`| head`).
    """
    if sys.stderr is None:  # closed: `print` would write messages to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed; redirect it to a file or to /dev/null")
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")
        work()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output again at exit, which would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _integer(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """Returns an argument type for whole numbers within bounds."""
    bounds = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < lowest or (highest is not None and int(text) > highest):
            raise argparse.ArgumentTypeError(f"must be a whole number {bounds}, not {text}")
        return int(text)

    return convert


natural_number = _integer(0)
positive_integer = _integer(1)
thread_count = _integer(1, MAX_THREADS)
port_number = _integer(1, 65535)


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_implementation_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--implementation`, which selects how models are computed."""
    parser.add_argument(
        "--implementation",
        default="auto",
        metavar="NAME",
        help="auto: the fastest available path; reference: the plain equations of the model's file; or the name of a "
        "fast path (default: %(default)s)",
    )


def add_code_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--trust-remote-code`, for model types that neither this package nor Transformers has."""
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the code in the checkpoint if neither onlstm_hf nor Transformers knows its model type",
    )


def split_weights(names: Iterable[str]) -> list[tuple[str, float]]:
    """Splits each `NAME=WEIGHT` into the name and weight of a parser; `NAME` alone has weight 1.

    Raises:
        ValueError: if a parser is named twice, or a weight is not a positive number.
    """
    weighted, seen = [], set()
    for name in names:
        parser, separator, text = name.rpartition("=")
        if not separator or Path(name).exists():
            parser, text = name, "1"
        try:
            weight = float(text)
        except ValueError:
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise ValueError(f"give NAME or NAME=WEIGHT, with a weight above 0, not {name}")
        if os.path.realpath(parser) in seen:
            raise ValueError(f"{parser} is named twice; NAME=2 counts a parser as two")
        seen.add(os.path.realpath(parser))
        weighted.append((parser, weight))
    return weighted
