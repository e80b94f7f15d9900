"""Convolution over time with fewer products, by minimal filtering (Winograd's algorithms)."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from .linear import linear, uses_onednn


class Convolution(nn.Conv1d):
    """`nn.Conv1d` with a stride of 1 and no padding, where oneDNN is used by minimal filtering.

    Four neighbouring outputs of a filter of six taps take 24 products directly, and 12 by Winograd's algorithm F(2, 3)
    of filters that go by F(2, 2) themselves (Lavin & Gray 2016, section 4.1): of sums of their inputs with sums of the
    taps. Longer filters are cut into sixes, whose products are summed by the same matrix product.

    Attributes:
        implementation: "reference" for PyTorch's own function.
    """

    implementations = ("auto", "reference")
    implementation = "auto"

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int):
        super().__init__(in_channels, out_channels, kernel_size)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """`inputs` `[B, in, T + kernel - 1]` to `[B, out, T]`."""
        (kernel_size,) = self.kernel_size
        # Up to three taps take as many products an output as six do by the algorithm.
        is_plain = self.implementation == "reference" or kernel_size <= _TAPS // 2
        if is_plain or not uses_onednn(inputs, self.weight, self.bias):
            return super().forward(inputs)
        batch_size, _, num_steps = inputs.shape
        length, num_filters = num_steps - kernel_size + 1, math.ceil(kernel_size / _TAPS)
        windows = _windows(inputs.transpose(1, 2), math.ceil(length / _OUTPUTS), _TAPS * num_filters + _OUTPUTS - 1)
        taps = F.pad(self.weight, (0, _TAPS * num_filters - kernel_size)).permute(2, 0, 1)
        places = range(0, _TAPS * num_filters, _TAPS)
        sums_of_inputs = [_mixed(_INPUT_SUMS, windows[place : place + _INPUT_SUMS.shape[1]]) for place in places]
        sums_of_taps = [_mixed(_TAP_SUMS, taps[place : place + _TAPS]) for place in places]
        operands = (
            (sums[0] if num_filters == 1 else torch.cat(sums, dim=-1)).unbind()
            for sums in (sums_of_inputs, sums_of_taps)
        )
        products = torch.stack([linear(left, right) for left, right in zip(*operands, strict=True)])
        outputs = _mixed(_OUTPUT_SUMS, products).permute(1, 2, 0, 3).reshape(batch_size, -1, self.out_channels)
        return (outputs[:, :length] + self.bias).transpose(1, 2)


# The sums of Winograd's algorithms for two outputs, of two and of three taps: of inputs, of taps and of products.
_TWO_TAPS = (
    torch.tensor([[1.0, -1, 0], [0, 1, 0], [0, 1, -1]]),
    torch.tensor([[1.0, 0], [1, 1], [0, 1]]),
    torch.tensor([[1.0, 1, 0], [0, 1, -1]]),
)
_THREE_TAPS = (
    torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]]),
)
# Of both, the one in the other: the first's two outputs are two steps apart in the second's, as are its three taps.
_TAP_SUMS, _OUTPUT_SUMS = (
    torch.kron(outer, inner) for outer, inner in zip(_THREE_TAPS[1:], _TWO_TAPS[1:], strict=True)
)
_INPUT_SUMS = sum(
    F.pad(torch.kron(_THREE_TAPS[0][:, place : place + 1], _TWO_TAPS[0]), (2 * place, 6 - 2 * place))
    for place in range(4)
)
_TAPS, _OUTPUTS = _TAP_SUMS.shape[1], len(_OUTPUT_SUMS)


def _windows(steps: torch.Tensor, num_windows: int, size: int) -> torch.Tensor:
    """Of steps `[B, T, C]`, filled up with zeros, windows that are `_OUTPUTS` steps apart: `[size, B, windows, C]`."""
    num_groups = num_windows + math.ceil(size / _OUTPUTS) - 1
    filled = F.pad(steps, (0, 0, 0, num_groups * _OUTPUTS - steps.shape[1]))
    groups = filled.unflatten(1, (num_groups, _OUTPUTS)).permute(2, 0, 1, 3)
    return torch.cat(
        [
            groups[: size - first * _OUTPUTS, :, first : first + num_windows]
            for first in range(math.ceil(size / _OUTPUTS))
        ]
    )


def _mixed(sums: torch.Tensor, tensors: torch.Tensor) -> torch.Tensor:
    """`sums` `[M, N]` of `tensors` `[N, ...]`: `[M, ...]`."""
    return (sums @ tensors.flatten(1)).view(len(sums), *tensors.shape[1:])
