"""Reports of a training run: a progress bar, `log.jsonl`, and the trackers of Accelerate."""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from tqdm.auto import tqdm

from training.loop.checkpointing import reported_failure_to_write, sync
from training.loop.progress import Progress

DIVERGED_ABOVE_GUESSING = 2.0


class TrainingDiverged(RuntimeError):
    """Loss or weights are not finite, or the loss is far above that of guessing."""


class TrainingLog:
    """Loss, perplexity and speed since the last entry, the loss averaged over items and processes.

    Args:
        accelerator: the run's.
        output_dir: folder of the run.
        progress: of the run; every entry has its update and epoch.
        num_classes: a loss counts as diverged at twice that of guessing among so many.
        unit: what is predicted and counted.
        state: `state_dict()` of the log of the run that is resumed.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        output_dir: Path,
        progress: Progress,
        num_classes: int,
        unit: str,
        state: dict | None = None,
    ):
        self.accelerator, self.output_dir, self.progress = accelerator, output_dir, progress
        self.unit = unit
        self.guessing_loss = math.log(num_classes)
        self._clear()
        if state is not None:
            summed = {"loss": state["summed_loss"], **state.get("summed_further_losses", {})}
            self.summed = {name: loss.to(accelerator.device) for name, loss in summed.items()}
            self.num_items = state["num_items"]
        if accelerator.is_main_process:
            self._cut_back()
        is_shown = accelerator.is_main_process
        self.bar = tqdm(total=progress.total_steps, initial=progress.step, unit="step", disable=not is_shown)

    @property
    def path(self) -> Path:
        return self.output_dir / "log.jsonl"

    def _cut_back(self) -> None:
        """Removes what was logged after the checkpoint, as it will be logged again, and a line that is torn.

        Says so where entries that the checkpoint counts are lost.
        """
        counted = self.progress.log_size
        content = self.path.read_bytes()[:counted] if self.path.exists() else b""
        kept = content.rfind(b"\n") + 1
        if self.path.exists():
            os.truncate(self.path, kept)
        if kept < counted:
            self.accelerator.print(
                f"{self.path} lacks {counted - kept} bytes of what it had at the last checkpoint: these entries are "
                "lost, and new ones follow its last whole line"
            )

    def _clear(self) -> None:
        self.summed = {"loss": torch.zeros((), device=self.accelerator.device)}
        self.num_items = 0.0
        self.num_counted, self.start = 0.0, time.perf_counter()

    def state_dict(self) -> dict:
        """Returns the sums that this process has gathered for the next entry."""
        further = {name: loss.cpu() for name, loss in self.summed.items()}
        return {"summed_loss": further.pop("loss"), "num_items": self.num_items, "summed_further_losses": further}

    def sync(self) -> None:
        """Waits until `log.jsonl` is on the disk, as a checkpoint that counts its bytes will be."""
        if self.path.exists():
            sync(self.path)

    def size(self) -> int:
        """Bytes of `log.jsonl`."""
        return self.path.stat().st_size if self.path.exists() else 0

    def add(self, losses: dict[str, torch.Tensor], num_items: float) -> None:
        """Counts one update: its mean losses, the cross-entropy `"loss"` among them, over each process's items."""
        for name, loss in losses.items():
            self.summed[name] = self.summed.get(name, 0.0) + loss * num_items
        self.num_items += num_items
        self.num_counted += num_items * self.accelerator.num_processes
        self.bar.update()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the time that the block takes out of the speed."""
        start = time.perf_counter()
        yield
        self.start += time.perf_counter() - start

    def mean_losses(self) -> dict[str, float] | None:
        """The training losses since the last entry, `None` where there was no update.

        Raises:
            TrainingDiverged: as `check_loss`.
        """
        if not self.num_items:
            return None
        means = {name: loss / self.num_items for name, loss in self.summed.items()}
        means = {name: loss.item() for name, loss in self.accelerator.reduce(means, reduction="mean").items()}
        self.check_loss(means["loss"], "training loss")
        return means

    def check_loss(self, loss: float, name: str) -> None:
        """Raises `TrainingDiverged` if a loss is not finite or far above that of guessing."""
        if not math.isfinite(loss) or loss > DIVERGED_ABOVE_GUESSING * self.guessing_loss:
            raise self.diverged(f"the {name} is {loss:.4g} (guessing gives {self.guessing_loss:.4g})")

    def diverged(self, reason: str) -> TrainingDiverged:
        """The error that ends a run, with what is left of it."""
        checkpoint = self.output_dir / "last"
        kept = f"The last good checkpoint is {checkpoint}" if checkpoint.exists() else "There is no checkpoint yet"
        return TrainingDiverged(
            f"training diverged before update {self.progress.step}: {reason}. {kept}; try a lower learning_rate or "
            "max_grad_norm"
        )

    def write_training(self, learning_rate: float) -> None:
        """Writes an entry on the updates since the last one."""
        losses = self.mean_losses()
        loss = losses["loss"]
        perplexity, speed = math.exp(loss), self.num_counted / (time.perf_counter() - self.start)
        speed_name = f"{self.unit}_per_s"
        self.bar.set_postfix({"loss": f"{loss:.3f}", "ppl": f"{perplexity:.1f}", speed_name: f"{speed:.0f}"})
        self._write({**losses, "perplexity": perplexity, speed_name: speed, "learning_rate": learning_rate})
        self._clear()

    def write_validation(self, scores: dict[str, float]) -> None:
        """Writes the result of a validation, and shows it above the progress bar."""
        self._write(scores)
        if self.accelerator.is_main_process:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
            self.bar.write(f"update {self.progress.step}, epoch {self.progress.epoch}: {shown}")

    def _write(self, values: dict[str, float]) -> None:
        self.accelerator.log(values, step=self.progress.step)
        if self.accelerator.is_main_process:
            entry = {"step": self.progress.step, "epoch": self.progress.epoch, **values}
            with reported_failure_to_write(self.path), open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Ends the log after the block. That of a run which fails before its first checkpoint becomes another file's.

        There is nothing to resume, and `log.jsonl` would look like a run that can be resumed.
        """
        try:
            yield
        except BaseException:
            has_checkpoint = any((self.output_dir / name).exists() for name in ("best", "last"))
            if self.accelerator.is_main_process and self.path.exists() and not has_checkpoint:
                self.path.replace(self.path.with_name("log.failed.jsonl"))
            raise
        finally:
            self.bar.close()


def check_trackers(names: list[str]) -> None:
    """Raises a `ValueError` for a tracker that is not installed, which Accelerate would leave out in silence."""
    available = [str(tracker) for tracker in get_available_trackers()]
    for name in names:
        if name not in available:
            raise ValueError(f"the tracker {name} is not known or not installed; there are: {', '.join(available)}")


def as_scalars(fields: dict) -> dict:
    """Fields of a recipe as trackers take them: lists, mappings and `None` as text."""
    return {
        name: value if isinstance(value, (str, int, float)) else json.dumps(value) for name, value in fields.items()
    }
