"""Whole updates of `training/train_lm.py`, to measure their speed and loss curves."""

import io
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from itertools import count, islice
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
    """Returns a new run of a recipe on a text, without a progress bar.

    Args:
        recipe: name of a file in `training/recipes`, without its suffix.
        text: file with one sentence per line.
        precision: "float32" or "bf16".
        folder: output folder; it is emptied.
        overrides: further arguments of `train_lm.py`.
        device: device of the run; by default a GPU if there is one.
    """
    # Accelerate keeps the precision of the first run for the whole process, but several runs start here.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    shutil.rmtree(folder, ignore_errors=True)
    arguments = [str(RECIPES / f"{recipe}.yaml")]
    arguments += [f"--train_files={text}", f"--validation_files={text}", f"--output_dir={folder}"]
    arguments += [f"--mixed_precision={MIXED_PRECISION[precision]}", *overrides]
    on_cpu = {"ACCELERATE_USE_CPU": "true"} if device is not None and device.type == "cpu" else {}
    with redirect_stderr(io.StringIO()), patch_environment(**on_cpu):  # the progress bar keeps this stderr
        return TrainingRun(LanguageModeling(parse_recipe(arguments), arguments))


def step_contestants(
    run: TrainingRun, implementations: Sequence[str], precision: str
) -> dict[str, Callable[[], None]]:
    """Returns for each path a function that makes one update on the same batch, by `"PATH PRECISION"`."""
    batch = next(run.batches.batches(0))
    model = run.accelerator.unwrap_model(run.model)

    def update(implementation: str) -> None:
        model.set_implementation(implementation)
        run.update([batch])

    return {
        f"{implementation} {precision}": lambda implementation=implementation: update(implementation)
        for implementation in implementations
    }


def updates(run: TrainingRun) -> Iterator[tuple[int, torch.Tensor]]:
    """Makes updates of a new run without end, and yields the number of tokens and the loss in nats of each."""
    losses: list[torch.Tensor] = []
    run.log.add = lambda of_update, num_items: losses.append(of_update["loss"])
    for epoch in count():
        for batch in run.batches.batches(epoch):
            run.update([batch])
            yield batch.input_ids.numel(), losses.pop()


def loss_curve(run: TrainingRun, implementation: str, num_steps: int) -> list[float]:
    """Returns the cross-entropy of each of the first updates of a new run, in nats."""
    run.accelerator.unwrap_model(run.model).set_implementation(implementation)
    steps = progress_bar(islice(updates(run), num_steps), total=num_steps, unit="update")
    return [loss.item() for _, loss in steps]


def largest_relative_difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    """Returns the largest relative difference of two loss curves at the same step; NaN if a loss is NaN."""
    differences = [abs(loss - target) / abs(target) for loss, target in zip(losses, expected, strict=True)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


class Training(NamedTuple):
    """Result of a training of limited time.

    Attributes:
        losses: cross-entropy of each update, in nats.
        tokens_per_second: speed after the warm-up, which compiles kernels and records graphs.
    """

    losses: list[float]
    tokens_per_second: float


def train_for(run: TrainingRun, seconds: float, num_warm_up: int = 10) -> Training:
    """Makes updates of a new run until the seconds are up and the warm-up is over, which does not count."""
    losses: list[torch.Tensor] = []
    device, begin, start, counted = run.accelerator.device, time.perf_counter(), 0.0, 0
    for number, (num_tokens, loss) in enumerate(updates(run), start=1):
        losses.append(loss)
        counted += num_tokens if number > num_warm_up else 0
        if number % num_warm_up == 0:
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # kernels run asynchronously
            start = start or time.perf_counter()
            if number > num_warm_up and time.perf_counter() - begin >= seconds:
                return Training([loss.item() for loss in losses], counted / (time.perf_counter() - start))
