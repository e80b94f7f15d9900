"""Matrix products and affine maps by the fastest library that PyTorch includes.

In float32 on a CPU that is oneDNN, which TorchInductor uses, too. `torch.matmul` uses MKL, which reaches only two
thirds of oneDNN's speed on some CPUs (AMD's). Everywhere else, and in compiled code, PyTorch chooses.
"""

import functools

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
# oneDNN needs a row-major left matrix. A transposed one is copied if all dimensions have at least this size.
_MIN_SIZE_TO_COPY = 512


def matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Returns `left @ right` of two matrices, `[M, K]` and `[K, N]` to `[M, N]`."""
    is_fast = left.is_contiguous() or min(*left.shape, right.shape[1]) >= _MIN_SIZE_TO_COPY
    if not is_fast or _is_differentiated(left, right) or not uses_onednn(left, right):
        return left @ right
    return _linear(left, right.t())


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Computes `F.linear`: `inputs` `[..., in]`, `weight` `[out, in]`, `bias` `[out]` to `[..., out]`."""
    tensors = [inputs, weight] if bias is None else [inputs, weight, bias]
    if not uses_onednn(*tensors):
        return F.linear(inputs, weight, bias)
    if not _is_differentiated(*tensors):
        return _linear(inputs, weight, bias)
    # With more dimensions oneDNN returns a view, and a view from a Function cannot be changed in place.
    rows = _Linear.apply(inputs.reshape(-1, inputs.shape[-1]), weight, bias)
    return rows.view(*inputs.shape[:-1], -1)


class Linear(nn.Linear):
    """`nn.Linear` that calls `linear`, or `F.linear` with the implementation `"reference"`."""

    implementations = ("auto", "reference")
    implementation = "auto"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        compute = F.linear if self.implementation == "reference" else linear
        return compute(inputs, self.weight, self.bias)


def uses_onednn(*tensors: torch.Tensor) -> bool:
    """Returns whether the functions of this file use oneDNN for these tensors."""
    return (
        _ONEDNN is not None
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and all(
            tensor.device.type == "cpu"
            and tensor.dtype == torch.float32
            and tensor.numel() > 0
            # Quantised weights of torchao do not own the storage of their values.
            and not hasattr(type(tensor), "__tensor_flatten__")
            for tensor in tensors
        )
        and _products_are_right(torch.get_num_threads())
    )


@functools.cache
def _products_are_right(num_threads: int) -> bool:
    """Returns whether oneDNN's products are correct with PyTorch's current number of threads.

    They are incomplete if the system grants fewer threads, for example because of OMP_THREAD_LIMIT.
    """
    with _disable_current_modes(), torch.inference_mode():
        left, right = torch.linspace(0, 1, 256 * 512).view(2, 256, 256)
        return torch.allclose(_linear(left, right), left @ right.T, rtol=1e-3)


def _is_differentiated(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        return _linear(rows, weight, bias)

    @staticmethod
    def backward(ctx, grad_outputs: torch.Tensor):
        rows, weight = ctx.saved_tensors
        return (
            matmul(grad_outputs, weight) if ctx.needs_input_grad[0] else None,
            matmul(grad_outputs.t(), rows) if ctx.needs_input_grad[1] else None,
            grad_outputs.sum(0) if ctx.needs_input_grad[2] else None,
        )


def _linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    # oneDNN would compute the product entry by entry for a slice of a larger weight.
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        weight = weight.contiguous()
    return _ONEDNN(inputs.contiguous(), weight, bias, "none", [], "")
