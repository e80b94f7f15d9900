"""The compiled CPU operators: finding the library for this CPU, and calling it.

An operator is built with the package where there is a compiler, once for each instruction set, and is given plain
addresses: it needs no headers of PyTorch and fits any version. Where it is missing, PyTorch operations run instead.
"""

import ctypes
import functools
import importlib.util
from pathlib import Path

import torch

# From the most capable to the plainest. Each library knows which CPUs can run it.
INSTRUCTION_SETS = ("avx512bf16", "avx512", "avx2", "generic")


@functools.cache
def find_library(operator: str, interface: int, instruction_set: str | None = None) -> ctypes.CDLL | None:
    """The library of an operator for this CPU, `None` where there is none that runs.

    Args:
        operator: its name.
        interface: the version of the structures that it must understand: a checkpoint's copy of this file may meet
            another version of the installed package.
        instruction_set: one of `INSTRUCTION_SETS`; the most capable one that runs if not given.
    """
    try:
        package = importlib.util.find_spec("onlstm_hf")
    except (ImportError, ValueError):
        package = None
    for folder in package.submodule_search_locations if package else ():
        for name in INSTRUCTION_SETS if instruction_set is None else (instruction_set,):
            for path in sorted(Path(folder, "ops").glob(f"_{operator}_{name}.*")):
                try:
                    library = ctypes.CDLL(str(path))
                    found = getattr(library, f"{operator}_interface")()
                except (OSError, AttributeError):  # built for another machine
                    continue
                if found == interface:
                    return library
    return None


def obstacle_to(library: ctypes.CDLL | None, sequence: torch.Tensor) -> str | None:
    """Why an operator cannot run on a sequence, if it cannot."""
    if sequence.device.type != "cpu":
        return f"it needs tensors on the CPU, not on {sequence.device}"
    if sequence.dtype == torch.float64:
        return "it computes in float32, not in float64"
    if sequence.numel() == 0:
        return "there is nothing to compute: the batch is empty"
    if library is None:
        return "its compiled operator is not installed (it is built with the package where there is a C++ compiler)"
    return None


def addresses(*names: str) -> type[ctypes.Structure]:
    """A structure of addresses with these names."""
    return type("Addresses", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_void_p) for name in names]})


def contiguous(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """What addresses can be taken of. (It has to be kept as long as they are used.)"""
    return [tensor if tensor is None else tensor.contiguous() for tensor in tensors]


def address(tensor: torch.Tensor | None) -> int | None:
    """Of the first entry, `None` where there is none."""
    return tensor.data_ptr() if tensor is not None and tensor.numel() else None


def call(function, *structures: ctypes.Structure) -> None:
    """Calls a function of a library.

    Raises:
        MemoryError: if it had not enough.
    """
    if function(*(ctypes.byref(structure) for structure in structures)):
        raise MemoryError("not enough memory for the packed recurrent weight")
