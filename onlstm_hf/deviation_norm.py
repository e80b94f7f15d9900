"""Layer normalisation as the authors of the PRPN have it: by the unbiased standard deviation, plus a constant.

The constant is added to the standard deviation, not to the variance as in `torch.nn.LayerNorm`; where a layer's values
are nearly equal, as those of an LSTM's cell after its first words, the difference can be seen.
"""

import math

import torch
from torch import nn

EPSILON = 1e-6


class DeviationNorm(nn.Module):
    """`weight * (x - mean) / (standard deviation + 1e-6) + bias` over the last dimension.

    Args:
        size: of the last dimension, at least 2.
    """

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalises `inputs` `[..., size]`, in float32 or better."""
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        return torch.addcmul(self.bias.to(inputs.dtype), _Normalization.apply(inputs), self.weight.to(inputs.dtype))


def normalize(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(x - mean) / (standard deviation + 1e-6)` over the last dimension, and what its backward pass needs.

    Returns:
        The normalised values `[..., size]`, and two numbers a row, `[..., 2]`: the factor that they were multiplied
        with, and that of their own part in the gradient.
    """
    size = inputs.shape[-1]
    # A constant row has the variance 0: the smallest epsilon keeps it from infinity.
    standardized, _, inverse_deviation = torch.native_layer_norm(inputs, (size,), None, None, 1e-24)
    # The kernel divides by the biased deviation; this goes from that to ours.
    correction = math.sqrt(size / (size - 1))
    rescaling = 1 / (correction + EPSILON * inverse_deviation)
    factors = torch.cat([inverse_deviation * rescaling, 1 / (rescaling * (correction * (size - 1)))], dim=-1)
    return standardized.mul_(rescaling), factors


def normalize_backward(gradient: torch.Tensor, normalized: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Gradient of the input of `normalize`, from that of its output and what it returned."""
    scale, own_part = factors.split(1, dim=-1)
    along = torch.linalg.vecdot(gradient, normalized).unsqueeze(-1) * own_part
    centred = gradient - gradient.mean(dim=-1, keepdim=True)
    return centred.addcmul_(normalized, along, value=-1).mul_(scale)


class _Normalization(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor) -> torch.Tensor:
        normalized, factors = normalize(inputs)
        ctx.save_for_backward(normalized, factors)
        return normalized

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return normalize_backward(gradient, *ctx.saved_tensors)
