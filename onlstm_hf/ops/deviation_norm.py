"""Layer normalisation as the authors of the PRPN have it: by the unbiased standard deviation, plus a constant.

The constant is added to the standard deviation, not to the variance as in `torch.nn.LayerNorm`; where a layer's values
are nearly equal, as those of an LSTM's cell after its first words, the difference can be seen.
"""

import math

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .row_blocks import row_blocks

EPSILON = 1e-6
_ENTRIES_PER_BLOCK = 1 << 18


def layer_norm(inputs: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The definition, of `inputs` `[..., size]` by `gain` and `bias` `[size]`."""
    deviation = inputs.std(dim=-1, keepdim=True) + EPSILON
    return gain * (inputs - inputs.mean(dim=-1, keepdim=True)) / deviation + bias


class DeviationNorm(nn.Module):
    """`layer_norm` over the last dimension, with less memory and, on a CPU, more of it in the cache.

    Args:
        size: of the last dimension, at least 2.

    Attributes:
        implementation: "reference" for that function itself.
    """

    implementations = ("auto", "reference")
    implementation = "auto"

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalises `inputs` `[..., size]`, in float32 or better."""
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        gain, bias = self.weight.to(inputs.dtype), self.bias.to(inputs.dtype)
        run = layer_norm if self.implementation == "reference" else _DeviationNorm.apply
        return run(inputs, gain, bias)


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


class _DeviationNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        rows = inputs.reshape(-1, len(gain))
        normalized, outputs = torch.empty_like(rows), torch.empty_like(rows)
        inverse_deviation = rows.new_empty(len(rows), 1)
        for block in _blocks(rows):
            _, inverse_deviation[block] = normalize(rows[block], out=normalized[block])
            torch.addcmul(bias, normalized[block], gain, out=outputs[block])
        ctx.save_for_backward(normalized, inverse_deviation, gain)
        return outputs.view(inputs.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        normalized, inverse_deviation, gain = ctx.saved_tensors
        scale, own_part = gradient_factors(inverse_deviation, len(gain))
        rows = gradient.reshape(-1, len(gain))
        grad_inputs, grad_gain, grad_bias = (
            torch.empty_like(normalized),
            torch.zeros_like(gain),
            torch.zeros_like(gain),
        )
        for block in _blocks(rows):
            grad_inputs[block], product = normalize_backward(
                rows[block], normalized[block], gain, scale[block], own_part[block]
            )
            grad_gain += product.sum(0)
            grad_bias += rows[block].sum(0)
        return grad_inputs.view(gradient.shape), grad_gain, grad_bias


def _blocks(rows: torch.Tensor) -> list[slice]:
    """On a CPU blocks that fit into its cache, elsewhere one of all rows."""
    return row_blocks(*rows.shape, _ENTRIES_PER_BLOCK if rows.device.type == "cpu" else max(1, rows.numel()))
