"""Optimisers and learning rates of the recipes."""

import math

import torch
from recipe import OptimizationArguments
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn


def build_optimizer(model: nn.Module, arguments: OptimizationArguments) -> torch.optim.Optimizer:
    """AdamW, or the plain SGD that NT-ASGD starts from."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if arguments.optimizer == "adamw":
        return torch.optim.AdamW(
            parameters,
            lr=arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            eps=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            fused=True,
        )
    return torch.optim.SGD(parameters, lr=arguments.learning_rate, weight_decay=arguments.weight_decay, fused=True)


def average_of(model: nn.Module) -> AveragedModel:
    """The mean of the weights that it is given, one pass over them for each (fifteen times as fast as by default)."""
    return AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())


def learning_rate_factor(step: int, arguments: OptimizationArguments, total_steps: int | None) -> float:
    """Factor of the peak learning rate at an update, counted from 0: linear warm-up, then constant or half a cosine.

    Args:
        step: updates made so far. The cosine is 0 at `total_steps`, when the run has ended.
        arguments: the recipe's.
        total_steps: updates of the whole run; may be `None` with a constant schedule.
    """
    if step < arguments.warmup_steps:
        return (step + 1) / arguments.warmup_steps
    if arguments.schedule == "constant":
        return 1.0
    done = (step - arguments.warmup_steps) / max(1, total_steps - arguments.warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def has_stalled(losses: list[float], interval: int) -> bool:
    """The non-monotone rule of NT-ASGD (Merity et al. 2018, algorithm 1).

    Args:
        losses: validation losses of all checks so far, the one just made last.
        interval: `n`; true once the last loss is worse than the best one before the `n` checks that precede it.
    """
    *previous, last = losses
    return len(previous) > interval and last > min(previous[:-interval])


def all_finite(model: nn.Module) -> bool:
    """Whether no weight is NaN or infinite."""
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())
