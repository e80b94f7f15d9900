"""Fast paths that are tried on a tiny problem before `"auto"` takes them, and the answers, which are kept.

A kernel may be wrong, or fail, on a GPU or with a version of a library that nobody has tried. So at the first use in a
process, for each device and precision, it computes a tiny problem, values and gradients, and so does the compiled
operator of the CPU, where there is one. Where the two disagree the next path or the equations run instead, and one
warning says so.
"""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from .fast_path import FastPath

# The largest relative error, in the norm of each tensor. Wrong results are off by more, rounding to TF32 by less.
TOLERANCE = 0.01
TOLERANCE_IN_BFLOAT16 = 0.05
# The path that others are compared with, which is itself tested against the equations.
TRUSTED_PATH = "native"


class Setting(NamedTuple):
    """Inputs that a path is tried with.

    Attributes:
        device: where the tensors are.
        dtype: that of the sequence.
        product_in_bfloat16: whether products with weights are computed in bfloat16, as under autocast.
    """

    device: torch.device
    dtype: torch.dtype
    product_in_bfloat16: bool

    def __str__(self) -> str:
        products = ", products in bfloat16" if self.product_in_bfloat16 else ""
        return f"{self.device} ({str(self.dtype).removeprefix('torch.')}{products})"


class PathChecks:
    """The answers of one recurrence: which of its paths computed the tiny problem right.

    Args:
        compute: `compute(path, setting)` solves the tiny problem; it returns the values and the gradients, and leaves
            the global random state as it is.
        paths: those of the recurrence, by name.
    """

    def __init__(self, compute: Callable[[str, Setting], Sequence[torch.Tensor]], paths: Mapping[str, FastPath]):
        self._compute, self._paths = compute, paths
        self._faults: dict[tuple[str, Setting], str | None] = {}
        self._lock = threading.Lock()

    @torch.compiler.assume_constant_result
    def passes(self, name: str, *setting) -> bool:
        """Returns whether a path may be taken. It is tried if it was not yet, and one that fails is warned of once.

        The fields of the `Setting` come one by one, as a compiler takes them. Without an answer a path counts as right
        while PyTorch records a CUDA graph, when nothing can be tried.
        """
        setting = Setting(*setting)
        key = name, setting
        if key not in self._faults:
            if _is_recording(setting.device):
                return True
            with self._lock:
                if key not in self._faults:
                    # A new thread knows nothing of the caller's autograd, autocast, inference mode or dispatch modes.
                    with ThreadPoolExecutor(max_workers=1) as thread:
                        self._faults[key] = thread.submit(self._fault, name, setting).result()
                    if self._faults[key] is not None:
                        warnings.warn(
                            f"the {name} implementation is not used on {setting}, a slower one runs instead: on a "
                            f"tiny problem {self._faults[key]}",
                            RuntimeWarning,
                            stacklevel=2,
                        )
        return self._faults[key] is None

    def _fault(self, name: str, setting: Setting) -> str | None:
        """Returns the fault of a path, `None` if it has none."""
        try:
            computed = self._compute(name, setting)
        except Exception as error:  # whatever it is, another path can do without
            return f"it failed with {type(error).__name__}: {error}"
        trusted = self._paths.get(TRUSTED_PATH)
        if trusted is None or trusted.obstacle(torch.empty(1)) is not None:
            return None
        expected = self._compute(TRUSTED_PATH, setting._replace(device=torch.device("cpu")))
        errors = [_relative_error(*pair) for pair in zip(computed, expected, strict=True)]
        largest = max(errors, key=lambda error: (error != error, error))
        in_bfloat16 = setting.product_in_bfloat16 or setting.dtype == torch.bfloat16
        if largest <= (TOLERANCE_IN_BFLOAT16 if in_bfloat16 else TOLERANCE):
            return None
        return f"it does not compute what the {TRUSTED_PATH} one does (relative error {largest:.2g})"


def _relative_error(computed: torch.Tensor, expected: torch.Tensor) -> float:
    computed, expected = (tensor.detach().to("cpu", torch.float64) for tensor in (computed, expected))
    if computed.shape != expected.shape:
        return float("nan")
    return ((computed - expected).norm() / expected.norm()).item()


def _is_recording(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
