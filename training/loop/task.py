"""Interface of a training task: model, data and scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from training.loop.recipe import Recipe


@dataclass
class Progress:
    """Counters of a run, saved with every checkpoint.

    Attributes:
        epoch, batch, step: finished epochs, finished batches of the current epoch, and updates made.
        total_steps: updates of the whole run; `None` for streamed text without `max_steps`.
        num_averaged: number of averaged weights; 0 before averaging begins.
        validation_losses: the score that is minimised (`Task.validation_loss`), for all validations.
        best_epoch, validated_at: finished epochs at the best validation, and updates at the last one.
        stalled: whether the averaged weights stopped improving, which may end the run.
        log_size: bytes of `log.jsonl`.
        seconds: run time up to the last checkpoint, over all resumptions.
        changes: recipe changes at resumptions: `step`, and the `field` with its value `before` and `after`.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    total_steps: int | None = None
    num_averaged: int = 0
    validation_losses: list[float] = field(default_factory=list)
    best_epoch: int = 0
    validated_at: int | None = None
    stalled: bool = False
    log_size: int = 0
    seconds: float = 0.0
    changes: list[dict[str, Any]] = field(default_factory=list)

    def end_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0

    @property
    def best_loss(self) -> float:
        """Returns the lowest validation loss, infinite before the first one."""
        return min(self.validation_losses, default=math.inf)


@dataclass(frozen=True)
class ProcessShard:
    """The rows of every global batch that one process trains on."""

    batch_size: int
    process_index: int = 0
    num_processes: int = 1

    @property
    def num_rows(self) -> int:
        return self.batch_size * self.num_processes

    @property
    def rows(self) -> slice:
        return slice(self.process_index * self.batch_size, (self.process_index + 1) * self.batch_size)


class TrainingBatch(Protocol):
    """One batch of one process, with a factor of the learning rate.

    `num_items` are the predicted items of all processes divided by the number of processes. Each process divides its
    summed loss by it, so that the mean over processes is the mean over items.
    """

    num_items: float
    lr_scale: float


class BatchSource(Protocol):
    """Batches of each epoch, reproducible from the seed."""

    def num_batches(self, epoch: int) -> int | None:
        """Returns the number of batches of the epoch, `None` if unknown."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[TrainingBatch]:
        """Yields the batches of an epoch from number `start` on."""


class Task(ABC):
    """Training task of one run. Errors in the input are a `ValueError` or an `OSError`.

    Attributes:
        command_line: arguments of the script, for results that record them.
        name: project name for the trackers of Accelerate.
        unit: unit of the predicted items, such as "tokens".
        logs_learning_rate: whether log entries of validations include the learning rate.
        tokenizer: set by `build_model`.
        num_classes: classes of an item, set by `build_model`. A loss far above guessing among them counts as diverged.
        fingerprints: `fingerprint` of each part of the data by name, set by `load_data`. A resumed run must have the
            same fingerprints.
        state: recurrent state that is carried to the next batch and saved in checkpoints; has a method `to(device)`.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    logs_learning_rate: ClassVar[bool] = False

    tokenizer: PreTrainedTokenizerBase
    num_classes: int
    fingerprints: dict[str, str]
    state: Any = None

    def __init__(self, recipe: Recipe, command_line: Sequence[str] = ()):
        self.recipe, self.command_line = recipe, command_line

    @abstractmethod
    def build_model(self, checkpoint: Path | None) -> PreTrainedModel:
        """Builds the initial model, with class and sizes of `checkpoint` if the run is resumed."""

    @abstractmethod
    def load_data(self, model: PreTrainedModel, shard: ProcessShard) -> BatchSource:
        """Reads all data, and returns the training batches of one process."""

    @abstractmethod
    def loss(
        self, model: torch.nn.Module, batch: TrainingBatch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Returns the loss to minimise, and the losses to log by name; `"loss"` is the cross-entropy.

        Each is summed over the batch and divided by `num_items`, the items of all batches of the update. The model is
        as Accelerate has prepared it, in training mode.
        """

    @abstractmethod
    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        """Returns the scores on validation data by their names in the log."""

    def validation_loss(self, scores: dict[str, float]) -> float:
        """Returns the score to minimise (the negative of a score that should be high)."""
        return scores["validation_loss"]

    @abstractmethod
    def write_results(self, model: PreTrainedModel, output_dir: Path, progress: Progress) -> dict:
        """Scores the best model, writes `results.json`, and returns its content. Called in the main process."""

    @abstractmethod
    def summary(self, results: dict) -> str:
        """Returns the main scores of `results.json` in one line."""

    def record(self, progress: Progress) -> dict[str, Any]:
        """Returns the common part of `results.json`."""
        return {
            "epochs": progress.epoch,
            "updates": progress.step,
            "recipe": self.recipe.fields(),
            "changes": progress.changes,
            "fingerprints": self.fingerprints,
        }
