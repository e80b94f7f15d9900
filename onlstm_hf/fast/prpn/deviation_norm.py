"""The layer normalisation of the PRPN without a graph: forward and backward pass of `DeviationNorm`."""

import math

import torch

EPSILON = 1e-6


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
