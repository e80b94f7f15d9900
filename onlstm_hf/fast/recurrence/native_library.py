"""The compiled CPU operators as fast paths: the library for this CPU, and calls of its functions.

Installing the package builds an operator for each instruction set if there is a compiler. Operators take plain
addresses, so they need no PyTorch headers and work with any version. Without them the equations run step by step.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from .fast_path import FastPath, unsupported_input

# Most capable first. Each library knows which CPUs can run it.
INSTRUCTION_SETS = ("avx512bf16", "avx512", "avx2", "generic")
FOLDER = Path(__file__).resolve().parents[1]
# Packing the weights is worthwhile from this many steps.
MIN_LENGTH = 4


class NativeOperator:
    """A compiled operator: finds its library, and computes a recurrence by its functions.

    `interface` is the required version of the C structures, as an older library may still be in the folder.
    """

    def __init__(self, name: str, interface: int):
        self.name, self.interface = name, interface

    @functools.cached_property
    def libraries(self) -> dict[str, ctypes.CDLL]:
        """The libraries that run on this CPU by instruction set, most capable first."""
        libraries = {}
        for instruction_set in INSTRUCTION_SETS:
            for path in FOLDER.glob(f"_{self.name}_{instruction_set}.*"):
                try:
                    library = ctypes.CDLL(str(path))
                    version = getattr(library, f"{self.name}_interface")()
                except (OSError, AttributeError):  # built for another machine
                    continue
                if version == self.interface:  # 0: this CPU lacks the instructions
                    libraries[instruction_set] = library
        return libraries

    @torch.compiler.assume_constant_result
    def instruction_set(self) -> str | None:
        """Returns the most capable instruction set with a library for this CPU, or `None` without any."""
        return next(iter(self.libraries), None)

    def unsupported_reason(self, sequence: torch.Tensor) -> str | None:
        """Returns why the operator cannot run on a layer's input, or `None` if it can."""
        reason = unsupported_input(sequence, "cpu")
        if reason is None and self.instruction_set() is None:
            return "its compiled operator is not installed (installing builds it if there is a C++ compiler)"
        return reason

    def path(
        self, trace_class: type[NamedTuple], gradients_class: type[NamedTuple], sizes: Callable, time_dim: int
    ) -> FastPath:
        """Returns the fast path of a recurrence that computes both passes by this operator.

        The operator takes the addresses of the tensors in the order of the arguments and results of a `FastPath`.
        `sizes` maps trace and options to its structure of sizes; a layer's input has the steps in `time_dim`.
        """

        def forward(inputs: NamedTuple, options: NamedTuple) -> NamedTuple:
            trace = trace_class.empty(inputs, options)
            self.call("forward", sizes(trace, options), (*inputs, *trace))
            return trace

        def backward(grad_trace: NamedTuple, trace: NamedTuple, inputs: NamedTuple, options: NamedTuple) -> NamedTuple:
            gradients = gradients_class.empty(trace, inputs)
            self.call("backward", sizes(trace, options), (*grad_trace, *trace, *inputs, *gradients))
            return gradients

        def is_worthwhile(sequence: torch.Tensor) -> bool:
            return sequence.shape[time_dim] >= MIN_LENGTH

        return FastPath(forward, backward, self.unsupported_reason, is_worthwhile)

    def call(self, function: str, sizes: ctypes.Structure, tensors: Sequence[torch.Tensor | None]) -> None:
        """Calls a function (named without the operator's prefix) with the sizes and the addresses of the tensors.

        Strided tensors are copied, so the function must only read them. Raises a `MemoryError` if memory runs out.
        """
        # Keeps the copies alive until the function returns, as it only has their addresses.
        tensors = [tensor if tensor is None else tensor.contiguous() for tensor in tensors]
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        run = getattr(self.libraries[self.instruction_set()], f"{self.name}_{function}")
        if run(ctypes.byref(sizes), (ctypes.c_void_p * len(tensors))(*addresses)):
            raise MemoryError("not enough memory for the packed recurrent weight")
