"""Finds the compiled library of an operator for this CPU. Needs no PyTorch, so that `--version` is fast."""

import ctypes
import importlib.util
from pathlib import Path
from typing import NamedTuple

# Most capable first. Each library knows which CPUs can run it.
INSTRUCTION_SETS = ("avx512bf16", "avx512", "avx2", "generic")


class FoundLibrary(NamedTuple):
    """A library that runs on this CPU, and its entry of `INSTRUCTION_SETS`."""

    library: ctypes.CDLL
    instruction_set: str


def find_library(
    operator: str, interface: int | None = None, instruction_set: str | None = None
) -> FoundLibrary | None:
    """Returns the library of an operator in the installed package, or `None` if none runs on this CPU.

    Args:
        operator: its name.
        interface: the required version of the C structures; any by default.
        instruction_set: one of `INSTRUCTION_SETS`; by default the most capable one that runs.
    """
    try:
        package = importlib.util.find_spec("onlstm_hf")
    except (ImportError, ValueError):
        package = None
    for folder in package.submodule_search_locations if package else ():
        for name in INSTRUCTION_SETS if instruction_set is None else (instruction_set,):
            # Shortest name first: older builds in the same folder have a Python ABI in their names.
            for path in sorted(Path(folder, "fast").glob(f"_{operator}_{name}.*"), key=lambda path: len(path.name)):
                try:
                    library = ctypes.CDLL(str(path))
                    version = getattr(library, f"{operator}_interface")()
                except (OSError, AttributeError):  # built for another machine
                    continue
                if version and interface in (None, version):  # 0: this CPU lacks the instructions
                    return FoundLibrary(library, name)
    return None
