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


def normalize(inputs: torch.Tensor, out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """`(x - mean) / (standard deviation + 1e-6)` over the last dimension, and what its backward pass needs.

    Args:
        inputs: `[..., size]`.
        out: where to write the result, of the same shape; a new tensor if not given.

    Returns:
        The normalised values `[..., size]`, and the inverse of the biased standard deviation `[..., 1]`.
    """
    size = inputs.shape[-1]
    # A constant row has the variance 0: the smallest epsilon keeps its inverse finite.
    standardized, _, inverse_deviation = torch.native_layer_norm(inputs, (size,), None, None, 1e-24)
    return torch.mul(standardized, _rescaling(inverse_deviation, size), out=out), inverse_deviation


def _rescaling(inverse_deviation: torch.Tensor, size: int) -> torch.Tensor:
    """From the biased standard deviation, by which PyTorch divides, to what stands in the denominator here."""
    return 1 / (math.sqrt(size / (size - 1)) + EPSILON * inverse_deviation)


def gradient_factors(inverse_deviation: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The two factors `[..., 1]` that `normalize_backward` needs, from what `normalize` returned."""
    rescaling = _rescaling(inverse_deviation, size)
    return inverse_deviation * rescaling, 1 / (rescaling * math.sqrt(size * (size - 1)))


def normalize_backward(
    gradient: torch.Tensor, normalized: torch.Tensor, scale: torch.Tensor, own_part: torch.Tensor
) -> torch.Tensor:
    """Gradient of the input of `normalize`, from that of its output, its output and the `gradient_factors`."""
    along = torch.linalg.vecdot(gradient, normalized).unsqueeze(-1) * own_part
    centred = gradient - gradient.mean(dim=-1, keepdim=True)
    return centred.addcmul_(normalized, along, value=-1).mul_(scale)


class _Normalization(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor) -> torch.Tensor:
        normalized, inverse_deviation = normalize(inputs)
        ctx.save_for_backward(normalized, inverse_deviation)
        return normalized

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        normalized, inverse_deviation = ctx.saved_tensors
        return normalize_backward(gradient, normalized, *gradient_factors(inverse_deviation, normalized.shape[-1]))
