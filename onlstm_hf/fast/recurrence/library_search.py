"""Finding the compiled library of an operator for this CPU, without PyTorch: the command's `--version` asks, too."""

import ctypes
import importlib.util
from pathlib import Path
from typing import NamedTuple

# From the most capable to the plainest. Each library knows which CPUs can run it.
INSTRUCTION_SETS = ("avx512bf16", "avx512", "avx2", "generic")


class FoundLibrary(NamedTuple):
    """A library that runs on this CPU, and the one of `INSTRUCTION_SETS` that it was built for."""

    library: ctypes.CDLL
    instruction_set: str


def find_library(
    operator: str, interface: int | None = None, instruction_set: str | None = None
) -> FoundLibrary | None:
    """The library of an operator in the installed package, `None` where there is none that runs.

    Args:
        operator: its name.
        interface: the version of the structures that it must understand; any if not given.
        instruction_set: one of `INSTRUCTION_SETS`; the most capable one that runs if not given.
    """
    try:
        package = importlib.util.find_spec("onlstm_hf")
    except (ImportError, ValueError):
        package = None
    for folder in package.submodule_search_locations if package else ():
        for name in INSTRUCTION_SETS if instruction_set is None else (instruction_set,):
            # The shortest name first: builds of older versions, which may lie beside it, name a Python ABI in theirs.
            for path in sorted(Path(folder, "fast").glob(f"_{operator}_{name}.*"), key=lambda path: len(path.name)):
                try:
                    library = ctypes.CDLL(str(path))
                    found = getattr(library, f"{operator}_interface")()
                except (OSError, AttributeError):  # built for another machine
                    continue
                if found and interface in (None, found):  # 0: this CPU lacks the instructions
                    return FoundLibrary(library, name)
    return None
