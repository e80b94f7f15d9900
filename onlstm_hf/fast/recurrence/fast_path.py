"""Contract of a fast path, the same for every recurrence, and the requirements that several paths share.

To add a path, write a file with a `FastPath` in the folder of its recurrence, and add a line to its table of paths.
"""

import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.utils._triton import has_triton_package

HAS_TRITON = has_triton_package()
# The compute capability of the oldest GPUs that Triton compiles for.
MIN_CAPABILITY = (7, 5)


class FastPath(NamedTuple):
    """One way to compute a recurrence over a whole sequence, with a hand-derived backward pass.

    `Inputs`, `Options`, `Trace` and `Gradients` are the named tuples of the recurrence: for the ON-LSTM those of
    `onlstm/contract.py`, for the reading network of the PRPN those of `prpn/contract.py`.

    Attributes:
        forward: `(inputs, options)` to the `Trace`: the results, and what the backward pass needs.
        backward: `(grad_trace, trace, inputs, options)` to the `Gradients`. `grad_trace` is a `Trace` with the
            gradients of the results, or `None` for a result without one. Fields of `inputs` that the recurrence's
            `kept_inputs` drops are `None`.
        unsupported_reason: says why the path cannot run on a layer's input; `None` if it can.
        is_worthwhile: whether `"auto"` may choose the path for a layer's input that it supports.
    """

    forward: Callable[[tuple, tuple], tuple]
    backward: Callable[[tuple, tuple, tuple, tuple], tuple]
    unsupported_reason: Callable[[torch.Tensor], str | None] = lambda sequence: None
    is_worthwhile: Callable[[torch.Tensor], bool] = lambda sequence: True


def unsupported_input(sequence: torch.Tensor, device_type: str) -> str | None:
    """Returns why no float32 path for this device type can run on a layer's input, or `None`."""
    if sequence.device.type != device_type:
        return f"it needs tensors on {'a GPU' if device_type == 'cuda' else 'the CPU'}, not on {sequence.device}"
    if sequence.dtype == torch.float64:
        return "it computes in float32, not in float64"
    return None if sequence.numel() else "the batch is empty"


def unsupported_by_triton(sequence: torch.Tensor) -> str | None:
    """Returns why no Triton path can run on a layer's input, or `None`."""
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
