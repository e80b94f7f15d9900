"""Layer normalisation as the authors of the PRPN have it: by the unbiased standard deviation, plus a constant.

The constant is added to the standard deviation, not to the variance as in `torch.nn.LayerNorm`; where a layer's values
are nearly equal, as those of an LSTM's cell after its first words, the difference can be seen.
"""

import math

import torch
from torch import nn
from torch.autograd.function import once_differentiable

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
        return _DeviationNorm.apply(inputs, self.weight.to(inputs.dtype), self.bias.to(inputs.dtype))


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
    gradient: torch.Tensor,
    normalized: torch.Tensor,
    gain: torch.Tensor,
    scale: torch.Tensor,
    own_part: torch.Tensor,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Backward pass of `normalize(inputs) * gain`.

    Args:
        gradient: `[..., size]`, of its output.
        normalized: `[..., size]`, what `normalize` returned.
        gain: `[size]`.
        scale: `[..., 1]`, the first of the `gradient_factors`.
        own_part: `[..., 1]`, the second.
        out: where to write the gradient of the inputs; a new tensor if not given.

    Returns:
        The gradient of the inputs `[..., size]`, and the product of gradient and normalised values `[..., size]`:
        summed over all but the last dimension, it is the gradient of the gain.
    """
    product = gradient * normalized
    along = (product @ gain).unsqueeze(-1) * own_part
    mean = (gradient @ gain).unsqueeze(-1) / gain.shape[0]
    centred = torch.addcmul(-mean, gradient, gain).addcmul_(normalized, along, value=-1)
    return torch.mul(centred, scale, out=out), product


class _DeviationNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        normalized, inverse_deviation = normalize(inputs)
        ctx.save_for_backward(normalized, inverse_deviation, gain)
        return torch.addcmul(bias, normalized, gain)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        normalized, inverse_deviation, gain = ctx.saved_tensors
        size = len(gain)
        factors = gradient_factors(inverse_deviation, size)
        grad_inputs, product = normalize_backward(gradient, normalized, gain, *factors)
        return grad_inputs, product.view(-1, size).sum(0), gradient.reshape(-1, size).sum(0)
