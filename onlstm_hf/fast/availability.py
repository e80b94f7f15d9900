"""Describes the compiled operators for this CPU in one line."""

import contextlib
import ctypes
import importlib.util
from pathlib import Path

from .recurrence.library_search import find_library

OPERATORS = {"ON-LSTM": "onlstm", "PRPN": "prpn"}
FAST_PATH_IS_MISSING = (
    "on CPUs: step by step; the compiled operators, which are two to three times as fast, are not installed or cannot "
    "run here (installing the package builds them if there is a C++ compiler)"
)


def describe_paths() -> str:
    """Returns one line with the instruction set of each model's compiled operator, or that it has none."""
    _load_openmp_of_pytorch()
    libraries = {model: find_library(operator) for model, operator in OPERATORS.items()}
    names = {model: library.instruction_set for model, library in libraries.items() if library}
    if not names:
        return FAST_PATH_IS_MISSING
    missing = [f"{model} step by step" for model in OPERATORS if model not in names]
    return "on CPUs: " + ", ".join([*(f"{model} compiled for {name}" for model, name in names.items()), *missing])


def _load_openmp_of_pytorch() -> None:
    """Loads PyTorch's OpenMP, which the operators use; the system may have none."""
    torch = importlib.util.find_spec("torch")
    for folder in torch.submodule_search_locations if torch else ():
        for path in Path(folder, "lib").glob("libgomp*.so*"):
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
