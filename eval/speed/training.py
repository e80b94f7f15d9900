"""Whole training steps of `training/train_lm.py`: for their speed, and for the loss curves of the paths."""

import io
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import patch_environment

from onlstm_hf.utils.iteration import progress_bar
from training.language_models.recipe import parse_recipe
from training.loop.run import TrainingRun
from training.train_lm import LanguageModeling

RECIPES = Path(__file__).resolve().parents[2] / "training" / "recipes"
MIXED_PRECISION = {"float32": "no", "bf16": "bf16"}


def start_training(
    recipe: str,
    text: Path,
    precision: str,
    folder: Path,
    overrides: Sequence[str] = (),
    device: torch.device | None = None,
) -> TrainingRun:
    """A run of a recipe on a text, which has made no update yet and shows no progress bar.

    Args:
        recipe: name of a file of `training/recipes`, without its ending.
        text: one sentence a line.
        precision: "float32" or "bf16".
        folder: for what the run writes; it is emptied.
        overrides: further arguments of `train_lm.py`.
        device: where; by default a GPU if there is one.
    """
    # Accelerate keeps the precision of the first run for the whole process, in which several runs start here.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    shutil.rmtree(folder, ignore_errors=True)
    arguments = [str(RECIPES / f"{recipe}.yaml")]
    arguments += [f"--train_files={text}", f"--validation_files={text}", f"--output_dir={folder}"]
    arguments += [f"--mixed_precision={MIXED_PRECISION[precision]}", *overrides]
    on_cpu = {"ACCELERATE_USE_CPU": "true"} if device is not None and device.type == "cpu" else {}
    with redirect_stderr(io.StringIO()), patch_environment(**on_cpu):  # the progress bar keeps what it finds here
        return TrainingRun(LanguageModeling(parse_recipe(arguments), arguments))


def step_contestants(
    run: TrainingRun, implementations: Sequence[str], precision: str
) -> dict[str, Callable[[], None]]:
    """Returns for every path a function that makes the run's own update of one batch; by `"PATH PRECISION"`."""
    batch = next(run.batches.batches(0))
    model = run.accelerator.unwrap_model(run.model)

    def update(implementation: str) -> None:
        model.set_implementation(implementation)
        run.update([batch])

    return {
        f"{implementation} {precision}": lambda implementation=implementation: update(implementation)
        for implementation in implementations
    }


def loss_curve(run: TrainingRun, implementation: str, num_steps: int) -> list[float]:
    """The cross-entropy of each of the first updates of a run, in nats."""
    run.accelerator.unwrap_model(run.model).set_implementation(implementation)
    losses: list[float] = []
    run.log.add = lambda of_update, num_items: losses.append(of_update["loss"].item())
    epochs = chain.from_iterable(run.batches.batches(0) for _ in repeat(None))
    for batch in progress_bar(islice(epochs, num_steps), total=num_steps, unit="update"):
        run.update([batch])
    return losses


def largest_relative_difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    """The largest difference of two loss curves at the same step, as a share of the expected loss; NaN if any is."""
    differences = [abs(ours - theirs) / abs(theirs) for ours, theirs in zip(losses, expected, strict=True)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


class Training(NamedTuple):
    """Updates of a run until its time was over.

    Attributes:
        losses: the cross-entropy of each update, in nats.
        tokens_per_second: without the first updates, which compile kernels and record graphs.
    """

    losses: list[float]
    tokens_per_second: float


def train_for(run: TrainingRun, seconds: float, num_warm_up: int = 10) -> Training:
    """Makes updates of a run for so many seconds, and a few at least.

    Args:
        run: a new one.
        seconds: how long.
        num_warm_up: updates that do not count for the speed.
    """
    losses: list[torch.Tensor] = []
    run.log.add = lambda of_update, num_items: losses.append(of_update["loss"])
    device, begin, start, counted = run.accelerator.device, time.perf_counter(), 0.0, 0
    epochs = chain.from_iterable(run.batches.batches(epoch) for epoch in count())
    for number, batch in enumerate(epochs, start=1):
        run.update([batch])
        counted += batch.input_ids.numel() if number > num_warm_up else 0
        if number % num_warm_up == 0:
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # the GPU may be far behind
            start = start or time.perf_counter()
            if number > num_warm_up and time.perf_counter() - begin >= seconds:
                return Training([loss.item() for loss in losses], counted / (time.perf_counter() - start))
