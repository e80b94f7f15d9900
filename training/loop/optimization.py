"""Optimisers and learning rates of the recipes."""

import math
from collections.abc import Sequence

import torch
from torch import distributed, nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from training.loop.recipe import UpdateArguments


def build_optimizer(model: nn.Module, arguments: UpdateArguments) -> torch.optim.Optimizer:
    """Adam, AdamW, or plain SGD, which is what NT-ASGD starts from."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    options = {"lr": arguments.learning_rate, "weight_decay": arguments.weight_decay, "fused": True}
    if arguments.optimizer not in ("adam", "adamw"):
        return torch.optim.SGD(parameters, **options)
    options |= {"betas": (arguments.adam_beta1, arguments.adam_beta2), "eps": arguments.adam_epsilon}
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[arguments.optimizer](parameters, **options)


def average_gradients(model: nn.Module) -> None:
    """Makes the processes that train a model average the gradients of each parameter by itself.

    DDP sends many together, and lays them out anew after its first update. In a run that is resumed that is another
    update, and what three or more processes sum up would then be summed up in another order.

    Args:
        model: as Accelerate has prepared it; the model of a single process is not changed.
    """
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(None, _averaged)


def _averaged(_: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    works = [
        distributed.all_reduce(gradient.div_(distributed.get_world_size()), async_op=True)
        for gradient in bucket.gradients()
    ]

    def received(_: torch.futures.Future) -> torch.Tensor:
        for work in works[:-1]:
            work.wait()
        return bucket.buffer()

    return works[-1].get_future().then(received)


def average_of(model: nn.Module, decay: float | None = None) -> AveragedModel:
    """Builds an average of weights, updated by one fused pass (fifteen times as fast as the default).

    With a `decay` it is an exponential moving average, which keeps that share of itself; otherwise the mean of all.
    """
    return AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn() if decay is None else get_ema_multi_avg_fn(decay))


def learning_rate_factor(
    step: int, arguments: UpdateArguments, total_steps: int | None, validation_losses: Sequence[float] = ()
) -> float:
    """Factor of the peak learning rate at an update, counted from 0: linear warm-up, then the recipe's schedule.

    It needs no state of its own to be saved. The schedulers of `transformers.get_scheduler` do; besides, they warm up
    from 0, which makes the first update an empty one, and take an improvement of less than 0.01 % for a plateau.

    Args:
        step: updates made so far. Cosine and decay are 0 at `total_steps`, when the run has ended.
        arguments: the recipe's.
        total_steps: updates of the whole run; only the schedules that fall to 0 at its end need it.
        validation_losses: those of all checks so far; only the plateaus need them.
    """
    if step < arguments.warmup_steps:
        return (step + 1) / arguments.warmup_steps
    if arguments.schedule == "constant":
        return 1.0
    if arguments.schedule == "plateau":
        return arguments.plateau_factor ** num_plateaus(validation_losses, arguments.plateau_patience)
    if arguments.schedule == "warmup_stable_decay":
        return min(1.0, max(0, total_steps - step) / max(1, arguments.decay_steps))
    done = (step - arguments.warmup_steps) / max(1, total_steps - arguments.warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def num_plateaus(losses: Sequence[float], patience: int) -> int:
    """Counts the times that more than `patience` checks in a row brought no new lowest loss."""
    lowest, without_improvement, count = math.inf, 0, 0
    for loss in losses:
        without_improvement = 0 if loss < lowest else without_improvement + 1
        lowest = min(lowest, loss)
        if without_improvement > patience:
            without_improvement, count = 0, count + 1
    return count


def has_stalled(losses: list[float], interval: int) -> bool:
    """The non-monotone rule of NT-ASGD (Merity et al. 2018, algorithm 1).

    Args:
        losses: validation losses of all checks so far, the one just made last.
        interval: `n`; true once the last loss is worse than the best one before the `n` checks that precede it.
    """
    *previous, last = losses
    return len(previous) > interval and last > min(previous[:-interval])


def all_finite(model: nn.Module) -> bool:
    """Returns whether all weights are finite."""
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())
