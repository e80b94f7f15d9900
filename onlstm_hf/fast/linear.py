"""Products of matrices and affine maps by the fastest of the libraries that PyTorch brings.

In float32 on a CPU that is oneDNN, which TorchInductor calls as well: `torch.matmul` takes MKL, which on some CPUs
(AMD's) reaches only two thirds of its speed. Everywhere else, and in compiled code, PyTorch decides.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
# oneDNN wants the left matrix by rows. From how many rows and columns on it pays to copy one that is not, and how many
# rows at a time, so that the copies are small beside the product.
_WORTH_A_COPY = 512
_ROWS_PER_COPY = 512


# By the number of threads whether oneDNN's products are right: they lack parts where the system grants fewer, as the
# environment variable OMP_THREAD_LIMIT makes it do.
_PRODUCTS_ARE_RIGHT: dict[int, bool] = {}


def matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right` of two matrices, `[M, K]` and `[K, N]` to `[M, N]`."""
    if not uses_onednn(left, right):
        return left @ right
    return _Product.apply(left, right) if _is_differentiated(left, right) else _product(left, right)


def linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, implementation: str = "auto"
) -> torch.Tensor:
    """`F.linear`: `inputs` `[..., in]`, `weight` `[out, in]`, `bias` `[out]` to `[..., out]`.

    With `"reference"` as the implementation it is that function itself.
    """
    tensors = [inputs, weight] if bias is None else [inputs, weight, bias]
    if implementation == "reference" or not uses_onednn(*tensors):
        return F.linear(inputs, weight, bias)
    if not _is_differentiated(*tensors):
        return _linear(inputs, weight, bias)
    # By rows: of more dimensions oneDNN gives a view, and a view that a Function returns cannot be changed in place.
    rows = _Linear.apply(inputs.reshape(-1, inputs.shape[-1]), weight, bias)
    return rows.view(*inputs.shape[:-1], -1)


class Linear(nn.Linear):
    """`nn.Linear` by the function `linear`.

    Attributes:
        implementation: "reference" for PyTorch's own function.
    """

    implementations = ("auto", "reference")
    implementation = "auto"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return linear(inputs, self.weight, self.bias, self.implementation)


def uses_onednn(*tensors: torch.Tensor) -> bool:
    """Returns whether the functions of this file give products of these tensors to oneDNN."""
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


def _products_are_right(num_threads: int) -> bool:
    """Returns whether oneDNN's products are right with so many threads, which are those of PyTorch now."""
    if num_threads not in _PRODUCTS_ARE_RIGHT:
        with _disable_current_modes(), torch.inference_mode():
            left, right = torch.linspace(0, 1, 256 * 512).view(2, 256, 256)
            product = _ONEDNN(left, right, None, "none", [], "")
            _PRODUCTS_ARE_RIGHT[num_threads] = torch.allclose(product, left @ right.T, rtol=1e-3)
    return _PRODUCTS_ARE_RIGHT[num_threads]


def _is_differentiated(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(left, right)
        return _product(left, right)

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor):
        left, right = ctx.saved_tensors
        return (
            matmul(grad_output, right.t()) if ctx.needs_input_grad[0] else None,
            matmul(left.t(), grad_output) if ctx.needs_input_grad[1] else None,
        )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        return _linear(rows, weight, bias)

    @staticmethod
    def backward(ctx, grad_outputs: torch.Tensor):
        rows, weight = ctx.saved_tensors
        return (
            linear(grad_outputs, weight.t()) if ctx.needs_input_grad[0] else None,
            matmul(grad_outputs.t(), rows) if ctx.needs_input_grad[1] else None,
            grad_outputs.sum(0) if ctx.needs_input_grad[2] else None,
        )


def _linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    # oneDNN would compute the product entry by entry for a weight that is a part of another one.
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        weight = weight.contiguous()
    return _ONEDNN(inputs.contiguous(), weight, bias, "none", [], "")


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if left.is_contiguous():
        return _linear(left, right.t())
    # The gradient of a weight: the left matrix is a transposed one.
    if min(*left.shape, right.shape[1]) < _WORTH_A_COPY:
        return left @ right
    product = left.new_empty(left.shape[0], right.shape[1])
    for part, rows in zip(product.split(_ROWS_PER_COPY), left.split(_ROWS_PER_COPY), strict=True):
        part.copy_(_linear(rows, right.t()))
    return product
