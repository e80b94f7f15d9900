"""Progress of a training run."""

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counters of a run, saved with every checkpoint.

    Attributes:
        epoch: finished epochs.
        batch: finished batches of the current epoch.
        step: updates made.
        total_steps: updates of the whole run; `None` for streamed text without `max_steps`.
        num_averaged: number of averaged weights; 0 before averaging begins.
        validation_losses: the score that is minimised (`Task.validation_loss`), for all validations.
        best_epoch: number of finished epochs at the best validation.
        validated_at: `step` of the last validation.
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
        """Counts the current epoch as finished."""
        self.epoch, self.batch = self.epoch + 1, 0

    @property
    def best_loss(self) -> float:
        """Returns the lowest validation loss, infinite before the first one."""
        return min(self.validation_losses, default=math.inf)
