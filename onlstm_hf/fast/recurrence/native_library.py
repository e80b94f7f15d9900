"""The compiled CPU operators: the library for this CPU, and calls of its functions.

An operator is built with the package where there is a compiler, once for each instruction set, and is given plain
addresses: it needs no headers of PyTorch and fits any version. Where it is missing, the equations run step by step.
"""

import ctypes
from collections.abc import Sequence

import torch

from .library_search import find_library


class NativeOperator:
    """A compiled operator: its library, which is looked for once, and calls of its functions.

    Args:
        name: its name.
        interface: the version of the structures that it must understand: a checkpoint's copy of this file may meet
            another version of the installed package.
    """

    def __init__(self, name: str, interface: int):
        self.name, self.interface = name, interface
        self._found: dict[str | None, ctypes.CDLL | None] = {}

    def library(self, instruction_set: str | None = None) -> ctypes.CDLL | None:
        """The library for this CPU, `None` where there is none that runs.

        Args:
            instruction_set: one of `INSTRUCTION_SETS`; the most capable one that runs if not given.
        """
        if instruction_set not in self._found:
            found = find_library(self.name, self.interface, instruction_set)
            self._found[instruction_set] = None if found is None else found.library
        return self._found[instruction_set]

    @torch.compiler.assume_constant_result
    def is_installed(self) -> bool:
        """Returns whether there is a library for this CPU."""
        return self.library() is not None

    def unsupported_reason(self, sequence: torch.Tensor) -> str | None:
        """Why the operator cannot run on a sequence, if it cannot."""
        if sequence.device.type != "cpu":
            return f"it needs tensors on the CPU, not on {sequence.device}"
        if sequence.dtype == torch.float64:
            return "it computes in float32, not in float64"
        if sequence.numel() == 0:
            return "there is nothing to compute: the batch is empty"
        if not self.is_installed():
            return (
                "its compiled operator is not installed (it is built with the package where there is a C++ compiler)"
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
            function: its name after that of the operator.
            sizes: the structure of numbers that it takes.
            inputs: what the first addresses of its other structure are of. Copies stand in for tensors that are not
                contiguous.
            outputs: what the remaining addresses are of, which must be contiguous.

        Raises:
            MemoryError: if it had not enough.
        """
        # The copies must stay alive until the function returns: it has nothing but their addresses.
        tensors = [tensor if tensor is None else tensor.contiguous() for tensor in inputs] + list(outputs)
        addresses = (ctypes.c_void_p * len(tensors))(*map(_address, tensors))
        if getattr(self.library(), f"{self.name}_{function}")(ctypes.byref(sizes), addresses):
            raise MemoryError("not enough memory for the packed recurrent weight")


def _address(tensor: torch.Tensor | None) -> int | None:
    """Returns the address of the first entry of a tensor; `None` for no tensor, or one without entries."""
    return tensor.data_ptr() if tensor is not None and tensor.numel() else None
