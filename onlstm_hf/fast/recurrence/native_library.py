"""The compiled CPU operators: the library for this CPU, and calls of its functions.

Installing the package builds an operator for each instruction set if there is a compiler. Operators take plain
addresses, so they need no PyTorch headers and work with any version. Without them the equations run step by step.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import torch

# Most capable first. Each library knows which CPUs can run it.
INSTRUCTION_SETS = ("avx512bf16", "avx512", "avx2", "generic")
FOLDER = Path(__file__).resolve().parents[1]


class NativeOperator:
    """A compiled operator: finds its library once, and calls its functions.

    Args:
        name: its name.
        interface: the required version of the C structures, as an older library may still be in the folder.
    """

    def __init__(self, name: str, interface: int):
        self.name, self.interface = name, interface
        self._libraries: dict[str, ctypes.CDLL | None] = {}

    def library(self, instruction_set: str) -> ctypes.CDLL | None:
        """Returns the library for one of `INSTRUCTION_SETS`, or `None` if there is none that runs on this CPU."""
        if instruction_set not in self._libraries:
            self._libraries[instruction_set] = self._find_library(instruction_set)
        return self._libraries[instruction_set]

    def instruction_set(self) -> str | None:
        """Returns the most capable instruction set with a library for this CPU, or `None` without any."""
        return next((name for name in INSTRUCTION_SETS if self.library(name) is not None), None)

    @torch.compiler.assume_constant_result
    def is_installed(self) -> bool:
        """Returns whether there is a library for this CPU."""
        return self.instruction_set() is not None

    def unsupported_reason(self, sequence: torch.Tensor) -> str | None:
        """Returns why the operator cannot run on a layer's input, or `None` if it can."""
        if sequence.device.type != "cpu":
            return f"it needs tensors on the CPU, not on {sequence.device}"
        if sequence.dtype == torch.float64:
            return "it computes in float32, not in float64"
        if sequence.numel() == 0:
            return "the batch is empty"
        if not self.is_installed():
            return (
                "its compiled operator is not installed (installing the package builds it if there is a C++ compiler)"
            )
        return None

    def call(
        self,
        function: str,
        sizes: ctypes.Structure,
        inputs: Sequence[torch.Tensor | None],
        outputs: Sequence[torch.Tensor | None],
    ) -> None:
        """Calls a function of the library.

        Args:
            function: its name without the operator's prefix.
            sizes: its first argument, the structure of sizes.
            inputs: tensors for the first addresses of its second argument; copied if they are not contiguous.
            outputs: contiguous tensors for the remaining addresses.

        Raises:
            MemoryError: if memory runs out.
        """
        # Keeps the copies alive until the function returns, as it only has their addresses.
        tensors = [tensor if tensor is None else tensor.contiguous() for tensor in inputs] + list(outputs)
        addresses = (ctypes.c_void_p * len(tensors))(*map(_address, tensors))
        library = self.library(self.instruction_set())
        if getattr(library, f"{self.name}_{function}")(ctypes.byref(sizes), addresses):
            raise MemoryError("not enough memory for the packed recurrent weight")

    def _find_library(self, instruction_set: str) -> ctypes.CDLL | None:
        for path in FOLDER.glob(f"_{self.name}_{instruction_set}.*"):
            try:
                library = ctypes.CDLL(str(path))
                version = getattr(library, f"{self.name}_interface")()
            except (OSError, AttributeError):  # built for another machine
                continue
            if version == self.interface:  # 0: this CPU lacks the instructions
                return library
        return None


def _address(tensor: torch.Tensor | None) -> int | None:
    """Returns the address of the first entry of a tensor; `None` for no tensor, or one without entries."""
    return tensor.data_ptr() if tensor is not None and tensor.numel() else None
