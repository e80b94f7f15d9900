"""Whole updates of `training/train_lm.py`, to measure their speed and loss curves."""

import io
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr
from itertools import chain, count, islice
from pathlib import Path

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
    overrides: Sequence[str],
    device: torch.device,
) -> TrainingRun:
    """Returns a new run of a recipe of `training/recipes` on a text, without a progress bar.

    `precision` is "float32" or "bf16". The output folder is emptied. `overrides` are arguments of `train_lm.py`.
    """
    # Accelerate keeps the precision of the first run for the whole process, but several runs start here.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    shutil.rmtree(folder, ignore_errors=True)
    arguments = [str(RECIPES / f"{recipe}.yaml")]
    arguments += [f"--train_files={text}", f"--validation_files={text}", f"--output_dir={folder}"]
    arguments += [f"--mixed_precision={MIXED_PRECISION[precision]}", *overrides]
    on_cpu = {"ACCELERATE_USE_CPU": "true"} if device.type == "cpu" else {}
    with redirect_stderr(io.StringIO()), patch_environment(**on_cpu):  # the progress bar keeps this stderr
        return TrainingRun(LanguageModeling(parse_recipe(arguments), arguments))


def set_implementation(run: TrainingRun, implementation: str) -> None:
    run.accelerator.unwrap_model(run.model).set_implementation(implementation)


def loss_curve(run: TrainingRun, implementation: str, num_steps: int) -> list[float]:
    """Returns the cross-entropy of each of the first updates of a new run, in nats."""
    set_implementation(run, implementation)
    losses: list[torch.Tensor] = []
    run.log.add = lambda of_update, num_items: losses.append(of_update["loss"])
    batches = chain.from_iterable(run.batches.batches(epoch) for epoch in count())
    for batch in progress_bar(islice(batches, num_steps), total=num_steps, unit="update"):
        run.update([batch])
    return [loss.item() for loss in losses]
