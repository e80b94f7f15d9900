"""Affine maps of whole sequences by the fastest of the libraries that PyTorch brings, also with adapters around."""

import torch
from torch import nn
from torch.nn import functional as F

# oneDNN's float32 product, which TorchInductor calls. F.linear takes MKL's, which on some CPUs (AMD's) reaches only
# two thirds of its speed.
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`F.linear`: `inputs` `[..., in]`, `weight` `[out, in]`, `bias` `[out]` to `[..., out]`."""
    tensors = [inputs, weight] if bias is None else [inputs, weight, bias]
    fits = (
        _ONEDNN is not None
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
        and inputs.numel() > 0
    )
    return _OneDNNLinear.apply(inputs, weight, bias) if fits else F.linear(inputs, weight, bias)


def weight_and_bias(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight `[out, in]` and bias `[out]` of an affine map that is not called but computed by other means.

    An adapter that stands in the place of the linear layer, as PEFT's do, changes what is computed and not the weight:
    its map is read off its values.
    """
    if isinstance(module, nn.Linear):
        return module.weight, module.bias
    options = {"dtype": module.weight.dtype, "device": module.weight.device}
    bias = module(torch.zeros(1, module.in_features, **options))
    weight = (module(torch.eye(module.in_features, **options)) - bias).t()
    return weight.to(options["dtype"]), bias[0].to(options["dtype"])


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(ctx, grad_outputs: torch.Tensor):
        inputs, weight = ctx.saved_tensors
        grad_inputs = grad_weight = grad_bias = None
        rows = grad_outputs.flatten(0, -2)
        if ctx.needs_input_grad[0]:
            grad_inputs = linear(grad_outputs, weight.t())
        if ctx.needs_input_grad[1]:
            grad_weight = rows.t() @ inputs.flatten(0, -2)
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_inputs, grad_weight, grad_bias


def _product(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return _ONEDNN(inputs, weight, bias, "none", [], "")
