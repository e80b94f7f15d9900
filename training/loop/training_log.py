"""Log of a training run: progress bar, `log.jsonl`, and the trackers of Accelerate."""

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

from training.loop.checkpointing import sync
from training.loop.task import Progress, Task

# A loss above this multiple of that of guessing counts as diverged.
DIVERGED_ABOVE_GUESSING = 2.0


class TrainingLog:
    """Logs mean losses, perplexity and speed since the last entry. `state` is that of an interrupted run."""

    def __init__(
        self, accelerator: Accelerator, output_dir: Path, progress: Progress, task: Task, state: dict | None = None
    ):
        self.accelerator, self.output_dir, self.progress = accelerator, output_dir, progress
        self.path, self.unit = output_dir / "log.jsonl", task.unit
        self.guessing_loss = math.log(task.num_classes)
        self._clear()
        if state is not None:
            summed = {"loss": state["summed_loss"], **state.get("summed_further_losses", {})}
            self.summed = {name: loss.to(accelerator.device) for name, loss in summed.items()}
            self.num_items = state["num_items"]
        if accelerator.is_main_process and self.path.exists():
            # Entries after the checkpoint will be logged again; the last line may be incomplete.
            content = self.path.read_bytes()[: progress.log_size]
            os.truncate(self.path, content.rfind(b"\n") + 1)
        is_hidden = not accelerator.is_main_process
        self.bar = tqdm(total=progress.total_steps, initial=progress.step, unit="step", disable=is_hidden)

    def _clear(self) -> None:
        self.summed = {"loss": torch.zeros((), device=self.accelerator.device)}
        self.num_items = self.num_counted = 0.0
        self.start = time.perf_counter()

    def state_dict(self) -> dict:
        """Returns the sums of this process for the next entry."""
        losses = {name: loss.cpu() for name, loss in self.summed.items()}
        return {"summed_loss": losses.pop("loss"), "num_items": self.num_items, "summed_further_losses": losses}

    def size(self) -> int:
        """Returns the bytes of `log.jsonl` after an fsync, since a checkpoint records them."""
        if not self.path.exists():
            return 0
        sync(self.path)
        return self.path.stat().st_size

    def add(self, losses: dict[str, torch.Tensor], num_items: float) -> None:
        """Counts one update by its mean losses per item, including the cross-entropy `"loss"`."""
        for name, loss in losses.items():
            self.summed[name] = self.summed.get(name, 0.0) + loss * num_items
        self.num_items += num_items
        self.num_counted += num_items * self.accelerator.num_processes
        self.bar.update()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time of the block from the speed."""
        start = time.perf_counter()
        yield
        self.start += time.perf_counter() - start

    def mean_losses(self) -> dict[str, float] | None:
        """Returns the checked mean losses since the last entry, `None` without an update."""
        if not self.num_items:
            return None
        means = {name: loss / self.num_items for name, loss in self.summed.items()}
        means = {name: loss.item() for name, loss in self.accelerator.reduce(means, reduction="mean").items()}
        self.check_loss(means["loss"], "training loss")
        return means

    def check_loss(self, loss: float, name: str) -> None:
        """Raises a `ValueError` if a loss is not finite or far above that of guessing."""
        if not math.isfinite(loss) or loss > DIVERGED_ABOVE_GUESSING * self.guessing_loss:
            raise self.diverged(f"the {name} is {loss:.4g} (guessing gives {self.guessing_loss:.4g})")

    def diverged(self, reason: str) -> ValueError:
        """Returns the error that ends the run; it names the last checkpoint."""
        checkpoint = self.output_dir / "last"
        kept = f"The last good checkpoint is {checkpoint}" if checkpoint.exists() else "There is no checkpoint yet"
        return ValueError(
            f"training diverged before update {self.progress.step}: {reason}. {kept}; try a lower learning_rate or "
            "max_grad_norm"
        )

    def write_training(self, learning_rate: float) -> None:
        losses = self.mean_losses()
        loss = losses["loss"]
        perplexity, speed = math.exp(loss), self.num_counted / (time.perf_counter() - self.start)
        speed_name = f"{self.unit}_per_s"
        self.bar.set_postfix({"loss": f"{loss:.3f}", "ppl": f"{perplexity:.1f}", speed_name: f"{speed:.0f}"})
        self._write({**losses, "perplexity": perplexity, speed_name: speed, "learning_rate": learning_rate})
        self._clear()

    def write_validation(self, scores: dict[str, float]) -> None:
        self._write(scores)
        if self.accelerator.is_main_process:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
            self.bar.write(f"update {self.progress.step}, epoch {self.progress.epoch}: {shown}")

    def _write(self, values: dict[str, float]) -> None:
        self.accelerator.log(values, step=self.progress.step)
        if self.accelerator.is_main_process:
            entry = {"step": self.progress.step, "epoch": self.progress.epoch, **values}
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


def check_trackers(names: list[str]) -> None:
    """Raises a `ValueError` for a tracker that is not installed; Accelerate would silently skip it."""
    available = [str(tracker) for tracker in get_available_trackers()]
    if missing := [name for name in names if name not in available]:
        raise ValueError(f"the tracker {missing[0]} is not known or not installed; available: {', '.join(available)}")
