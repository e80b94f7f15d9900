"""Requirements of a GPU that the Triton paths of all recurrences share."""

import os
import shutil

import torch
from torch.utils._triton import has_triton_package

from .fast_path import unsupported_input

HAS_TRITON = has_triton_package()
# The compute capability of the oldest GPUs that Triton compiles for.
MIN_CAPABILITY = (7, 5)


def unsupported_reason(sequence: torch.Tensor) -> str | None:
    """Returns why a Triton path cannot run on a layer's input, or `None` if it can."""
    if reason := unsupported_input(sequence, "cuda"):
        return reason
    if not HAS_TRITON:
        return "Triton is not installed (pip install triton)"
    if not _has_compiler():
        return "Triton needs a C compiler (gcc, clang, or one that the environment variable CC names)"
    if _is_too_old(sequence.device):
        return f"Triton needs a GPU of compute capability {'.'.join(map(str, MIN_CAPABILITY))} or later"
    return None


@torch.compiler.assume_constant_result
def _has_compiler() -> bool:
    return any(map(shutil.which, (os.environ.get("CC", ""), "gcc", "clang")))


@torch.compiler.assume_constant_result
def _is_too_old(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) < MIN_CAPABILITY
