"""The interface of a task: model, data and scores, which differ between language models and classifiers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from training.loop.progress import Progress
from training.loop.recipe import Recipe


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
    """One batch of one process.

    Attributes:
        num_items: predicted items of all processes' rows divided by the number of processes. A process's summed loss
            is divided by it, so that the mean over processes is the mean over items.
        lr_scale: factor of the learning rate.
    """

    num_items: float
    lr_scale: float


class BatchSource(Protocol):
    """Batches of an epoch, the same in every run with the same seed."""

    def num_batches(self, epoch: int) -> int | None:
        """Batches of the epoch, `None` if that is not known beforehand."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[TrainingBatch]:
        """The batches of an epoch from number `start` on."""


class Task(ABC):
    """One task of one run.

    Attributes:
        recipe: what to do.
        command_line: the arguments that the recipe was read from, for results that record them.
        name: the project's name for the trackers of Accelerate.
        unit: what is predicted and counted.
        logs_learning_rate: whether the log entry of a validation has the learning rate, too.
        tokenizer: set by `build_model`.
        fingerprints: the `fingerprint` of each part of the data, by its name; set by `load_data`. To them comes
            that of the recipe's `model_code`. A run that is resumed must have the same of all that it had before.
        state: state that is carried from one batch to the next, with a method `to(device)`; saved with a checkpoint.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    logs_learning_rate: ClassVar[bool] = False

    tokenizer: PreTrainedTokenizerBase
    fingerprints: dict[str, str]
    state: Any = None

    def __init__(self, recipe: Recipe, command_line: Sequence[str] = ()):
        self.recipe, self.command_line = recipe, command_line

    def check(self) -> None:  # noqa: B027 (most tasks can only tell once they load)
        """Raises a `ValueError` or `OSError` for what can be seen to be wrong before anything is loaded."""

    @abstractmethod
    def build_model(self, checkpoint: Path | None) -> PreTrainedModel:
        """Builds the model to begin with; a resumed run has the class and size of the one in `checkpoint`."""

    @abstractmethod
    def load_data(self, model: PreTrainedModel, shard: ProcessShard) -> BatchSource:
        """Reads all data, and returns the training batches of one process.

        Raises:
            ValueError, OSError: where data are missing, or do not suit the model.
        """

    @abstractmethod
    def num_classes(self, model: PreTrainedModel) -> int:
        """Among how many an item is chosen: a loss far above that of guessing has diverged."""

    @abstractmethod
    def loss(
        self, model: torch.nn.Module, batch: TrainingBatch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss to minimise, and the losses to report: all summed over the batch, divided by `num_items`.

        The losses to report are keyed by their names in the log; `"loss"` is the cross-entropy. `num_items` counts
        those of all batches of the update. The model is in training mode, as Accelerate has prepared it.
        """

    @abstractmethod
    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        """Scores on validation data, by the names that the log gives them."""

    @abstractmethod
    def validation_loss(self, scores: dict[str, float]) -> float:
        """Returns the score to minimise (the negative of a score that should be high)."""

    @abstractmethod
    def write_results(self, output_dir: Path, progress: Progress, device: torch.device) -> dict:
        """Scores `best/`, writes `results.json`, and returns its content. Called once, in the first process."""

    @abstractmethod
    def summary(self, results: dict) -> str:
        """The scores in `results.json` that are worth a look when the run ends, in one line."""

    def record(self, progress: Progress) -> dict[str, Any]:
        """Returns the part of `results.json` that all tasks share: recipe, its changes, fingerprints of the data."""
        return {"recipe": self.recipe.fields(), "changes": progress.changes, "fingerprints": self.fingerprints}
