"""Optimisers, gradients and learning rates of the recipes."""

import math
from collections.abc import Sequence
from time import thread_time

import torch
from torch import distributed, nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.utils.benchmark import Timer

from onlstm_hf.fast.linear import matmul
from training.loop.recipe import UpdateArguments


def build_optimizer(model: nn.Module, arguments: UpdateArguments) -> torch.optim.Optimizer:
    """Returns Adam, AdamW, or plain SGD (also for NT-ASGD, which averages its weights later)."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    options = {"lr": arguments.learning_rate, "weight_decay": arguments.weight_decay, "fused": True}
    if arguments.optimizer not in ("adam", "adamw"):
        return torch.optim.SGD(parameters, **options)
    options |= {"betas": (arguments.adam_beta1, arguments.adam_beta2), "eps": arguments.adam_epsilon}
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[arguments.optimizer](parameters, **options)


def average_gradients(model: nn.Module) -> None:
    """Makes DDP average the gradient of each parameter separately, so that resumed runs give identical weights.

    DDP rebuilds its buckets after the first update of each process. A resumed run would therefore sum the gradients
    of three or more processes in another order. The model of a single process is not changed.
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


def learning_rate_factor(
    step: int, arguments: UpdateArguments, total_steps: int | None, validation_losses: Sequence[float] = ()
) -> float:
    """Returns the factor of the peak learning rate after `step` updates: linear warm-up, then the recipe's schedule.

    Unlike the schedulers of `transformers.get_scheduler`, it has no state to save. Those also warm up from 0, so that
    their first update changes nothing, and count an improvement of less than 0.01 % as a plateau. Only cosine and
    decay need `total_steps`, where they reach 0; only the plateau schedule needs all `validation_losses`.
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
    """Counts how often more than `patience` validations in a row did not improve on the lowest loss."""
    lowest, without_improvement, count = math.inf, 0, 0
    for loss in losses:
        without_improvement = 0 if loss < lowest else without_improvement + 1
        lowest = min(lowest, loss)
        if without_improvement > patience:
            without_improvement, count = 0, count + 1
    return count


def has_stalled(losses: list[float], interval: int) -> bool:
    """Returns whether the last loss is worse than the best one more than `interval` validations ago.

    This is the non-monotone trigger of NT-ASGD (Merity et al. 2018, algorithm 1, with the interval `n`).
    """
    *previous, last = losses
    return len(previous) > interval and last > min(previous[:-interval])


def bfloat16_speed() -> float:
    """Returns the speed of a bfloat16 matrix product relative to float32, measured on one thread of this CPU.

    CPU flags do not predict it: one CPU with AVX-512 BF16 was slower in bfloat16 than in float32.
    """
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        # Large enough that the product outweighs the call, and short even on a CPU without bfloat16 instructions.
        names = {"matmul": matmul, "factor": torch.ones(192, 192, dtype=dtype)}
        timer = Timer("matmul(factor, factor)", globals=names, timer=thread_time)
        # Other work on the machine hardly affects the minimum CPU time. `timeit` warms up first.
        seconds.append(min(timer.timeit(number=1).mean for _ in range(5)))
    return seconds[0] / seconds[1]
