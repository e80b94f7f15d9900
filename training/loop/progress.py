"""Where a training run stands."""

import math
from dataclasses import dataclass, field


@dataclass
class Progress:
    """What a run counts. Saved with every checkpoint.

    Attributes:
        epoch: epochs that are finished.
        batch: batches of the current epoch that are done.
        step: updates made.
        num_averaged: weights that the average consists of; 0 while there is none.
        best_loss: lowest validation loss.
        validation_losses: of all validations.
        validated_at: `step` of the last one.
        stalled: whether the averaged weights stopped improving, which ends the run.
        log_size: bytes of `log.jsonl`.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    num_averaged: int = 0
    best_loss: float = math.inf
    validation_losses: list[float] = field(default_factory=list)
    validated_at: int | None = None
    stalled: bool = False
    log_size: int = 0
