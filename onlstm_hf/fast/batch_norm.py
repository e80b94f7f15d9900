"""Batch normalisation (Ioffe & Szegedy 2015) that leaves padding out and spans all processes."""

import torch
from torch import distributed, nn
from torch.nn import functional as F


class MaskedBatchNorm(nn.Module):
    """Normalises each channel by its mean and variance over the real positions of the whole batch.

    In training the statistics are those of the batch, over all processes where `torch.distributed` is initialised, and
    a running mean of them is kept; in evaluation they are that running mean, so that rows do not depend on each other.

    Args:
        num_channels: how many channels there are.
        momentum: weight of a new batch in the running statistics.
        epsilon: added to the variance.
    """

    def __init__(self, num_channels: int, momentum: float = 0.1, epsilon: float = 1e-5):
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(num_channels))
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.register_buffer("running_mean", torch.zeros(num_channels))
        self.register_buffer("running_var", torch.ones(num_channels))

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalises `inputs`; half precision is computed in float32.

        Args:
            inputs: `[B, C]` or `[B, C, T]`.
            mask: optional booleans, `[B]` or `[B, T]`, `False` at positions that do not count.
        """
        values = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        if not self.training:
            return self._normalized(values, self.running_mean, self.running_var).to(inputs.dtype)
        is_plain = mask is None and not _is_distributed()
        # PyTorch's function is faster, but refuses a single position, and weights of another dtype than the values.
        if is_plain and values.numel() > values.shape[1] and values.dtype == self.weight.dtype:
            moments = self.running_mean, self.running_var
            outputs = F.batch_norm(values, *moments, self.weight, self.bias, True, self.momentum, self.epsilon)
            return outputs.to(inputs.dtype)
        mean, variance, count = _statistics(values, mask)
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return self._normalized(values, mean, variance).to(inputs.dtype)

    def _normalized(self, values: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        mean, variance, weight, bias = (tensor.to(values.dtype) for tensor in (mean, variance, self.weight, self.bias))
        scale = weight * torch.rsqrt(variance + self.epsilon)
        shape = (-1,) + (1,) * (values.dim() - 2)
        return torch.addcmul((bias - mean * scale).view(shape), values, scale.view(shape))


def _statistics(inputs: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean and biased variance `[C]` over the real positions of all processes, and how many these are."""
    dimensions = [dimension for dimension in range(inputs.dim()) if dimension != 1]
    real = inputs.new_ones(()) if mask is None else mask.unsqueeze(1).to(inputs.dtype)
    count = inputs.new_tensor(inputs.numel() / inputs.shape[1]) if mask is None else real.sum()
    count = _sum_over_processes(count).clamp(min=1)
    mean = _sum_over_processes((inputs * real).sum(dimensions)) / count
    centred = (inputs - mean.view((-1,) + (1,) * (inputs.dim() - 2))) * real
    return mean, _sum_over_processes(centred.square().sum(dimensions)) / count, count


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _sum_over_processes(values: torch.Tensor) -> torch.Tensor:
    """The sum of all processes' values; its gradient is the sum of theirs."""
    return _SumOverProcesses.apply(values) if _is_distributed() else values


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: torch.Tensor) -> torch.Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad_total: torch.Tensor) -> torch.Tensor:
        grad_values = grad_total.clone()
        distributed.all_reduce(grad_values)
        return grad_values
