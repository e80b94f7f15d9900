"""Layer normalisation as the authors of the PRPN have it: by the unbiased standard deviation, plus a constant.

The constant is added to the standard deviation, not to the variance as in `torch.nn.LayerNorm`; where a layer's values
are nearly equal, as those of an LSTM's cell after its first words, the difference can be seen.
"""

import math

import torch
from torch import nn

EPSILON = 1e-6


def layer_norm(inputs: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The definition, of `inputs` `[..., size]` by `gain` and `bias` `[size]`."""
    deviation = inputs.std(dim=-1, keepdim=True) + EPSILON
    return gain * (inputs - inputs.mean(dim=-1, keepdim=True)) / deviation + bias


class DeviationNorm(nn.Module):
    """`layer_norm` over the last dimension.

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
        return layer_norm(inputs, self.weight.to(inputs.dtype), self.bias.to(inputs.dtype))


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
    """The factor that turns values divided by the biased standard deviation, which PyTorch's function returns, into
    values divided by the unbiased one plus 1e-6."""
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
) -> tuple[torch.Tensor, torch.Tensor]:
    """Backward pass of `normalize(inputs) * gain`.

    Args:
        gradient: `[..., size]`, of its output.
        normalized: `[..., size]`, what `normalize` returned.
        gain: `[size]`.
        scale: `[..., 1]`, the first of the `gradient_factors`.
        own_part: `[..., 1]`, the second.

    Returns:
        The gradient of the inputs `[..., size]`, and the product of gradient and normalised values `[..., size]`:
        summed over all but the last dimension, it is the gradient of the gain.
    """
    product = gradient * normalized
    along = (product @ gain).unsqueeze(-1) * own_part
    mean = (gradient @ gain).unsqueeze(-1) / gain.shape[0]
    centred = (gradient * gain).sub_(mean).addcmul_(normalized, along, value=-1)
    return centred.mul_(scale), product
