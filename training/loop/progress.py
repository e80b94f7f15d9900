"""Progress of a training run."""

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counters of a run, saved with every checkpoint.

    Attributes:
        epoch: epochs that are finished.
        batch: batches of the current epoch that are done.
        step: updates made.
        total_steps: updates of the whole run, `None` where the length of streamed text and the end are unknown.
        num_averaged: weights that the average consists of; 0 while there is none.
        validation_losses: of all validations, what the best checkpoint has least of (`Task.validation_loss`).
        best_epoch: epochs that were finished when the lowest of them was reached.
        validated_at: `step` of the last validation.
        stalled: whether the averaged weights stopped improving, which ends the run.
        log_size: bytes of `log.jsonl`.
        seconds: that the run took up to its last checkpoint, in all sittings together.
        changes: of the recipe where the run was resumed: `step`, and the `field` with its value `before` and `after`.
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
        """The lowest validation loss, infinite before the first one."""
        return min(self.validation_losses, default=math.inf)
