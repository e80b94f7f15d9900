"""The run of one seed: its folder and its process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from onlstm_hf.trees.tree_files import FILE_NAME
from onlstm_hf.utils.files import write_json, written_file
from onlstm_hf.utils.results_file import portable
from training.language_models.recipe import LanguageModelRecipe

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "training" / "train_lm.py"
BYTES_OF_LAST_ENTRIES = 16_384


class SeedRun:
    """A run of train_lm.py in a folder of its own.

    Args:
        seed: of the run.
        recipe: of all runs; its `output_dir` has their folders.
    """

    def __init__(self, seed: int, recipe: LanguageModelRecipe):
        self.seed, self.recipe = seed, recipe
        self.folder = Path(recipe.run.output_dir) / f"seed_{seed}"
        self.process: subprocess.Popen | None = None
        self.first_seen: tuple[int, float] | None = None  # update and time

    @property
    def output(self) -> Path:
        return self.folder / "output.txt"

    def results(self) -> dict | None:
        """Returns the results of the finished run; `None` if it is not finished, or was a run of another recipe."""
        results = _read_json(self.folder / "results.json")
        # The run that was asked for may differ in fields on which nothing depends.
        decisive = (self.recipe.fields("fixed") | self.recipe.fields("recorded")).keys() - {"seed"}
        wanted, found = self.recipe.fields(), results.get("recipe", {}) if results else {}
        return results if all(found.get(name) == wanted[name] for name in decisive) else None

    def start(self, arguments: Sequence[str], num_threads: int) -> None:
        """Starts the run, or resumes it, in a process of its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {"--seed": self.seed, "--output_dir": self.folder, "--resume": "true", "--num_threads": num_threads}
        own_arguments = [str(part) for option in own.items() for part in option]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, *arguments, *own_arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": str(num_threads)},
            )
        self.first_seen = None

    def stop(self) -> None:
        """Ends the process at once. It resumes from its last checkpoint."""
        self.process.kill()
        self.process.wait()

    def progress(self) -> str:
        """Returns epoch, update, perplexities, speed and time left in one line, as far as known."""
        entries = _last_entries(self.folder / "log.jsonl")
        training = next((entry for entry in entries if "perplexity" in entry), None)
        validation = next((entry for entry in entries if "validation_perplexity" in entry), None)
        if not entries:
            return f"seed {self.seed}: begins"
        step, last_state = entries[0]["step"], _read_json(self.folder / "last" / "training_state" / "run.json")
        total_steps = last_state["progress"].get("total_steps") if last_state else None
        epoch = min(entries[0]["epoch"] + 1, self.recipe.optimization.num_epochs)
        parts = [
            f"epoch {epoch} of {self.recipe.optimization.num_epochs}",
            f"update {step}" + (f" of {total_steps}" if total_steps else ""),
            f"perplexity {training['perplexity']:.2f}" if training else "",
            f"validation {validation['validation_perplexity']:.2f}" if validation else "",
            f"{training['tokens_per_s']:.0f} tokens/s" if training else "",
            self._time_left(step, total_steps),
        ]
        return f"seed {self.seed}: {', '.join(filter(None, parts))}"

    def _time_left(self, step: int, total_steps: int | None) -> str:
        now = time.monotonic()
        # A run that is resumed first takes back what it logged after its last checkpoint.
        if self.first_seen is None or step < self.first_seen[0]:
            self.first_seen = step, now
        done, elapsed = step - self.first_seen[0], now - self.first_seen[1]
        if not done or total_steps is None:
            return ""
        minutes = max(0, total_steps - step) * elapsed / done / 60
        return f"{minutes // 60:.0f} h {minutes % 60:02.0f} min left"

    def failure(self) -> str:
        """Why the process ended without results: its signal or exit code, and its last words."""
        code = self.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        lines = self.output.read_text(encoding="utf-8", errors="replace").split("\n")
        last_words = next((line.split("\r")[-1].strip() for line in reversed(lines) if line.strip()), "")
        return f"seed {self.seed} {how}: {last_words} (all of its output: {self.output})"

    def copy_results(self, folder: Path) -> None:
        """Copies results and trees, each as one file that begins with the seed's name."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{self.folder.name}.json", portable(_read_json(self.folder / "results.json")))
        if (self.folder / FILE_NAME).exists():
            with written_file(folder / f"{self.folder.name}.{FILE_NAME}", binary=True) as copy:
                copy.write((self.folder / FILE_NAME).read_bytes())


def _read_json(path: Path) -> dict | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _last_entries(path: Path) -> list[dict]:
    """The last entries of a log, the newest first. A line that is being written is left out."""
    entries = []
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - BYTES_OF_LAST_ENTRIES))
        for line in reversed(file.read().splitlines()):
            with suppress(ValueError):
                entries.append(json.loads(line))
    return [entry for entry in entries if isinstance(entry, dict)]
