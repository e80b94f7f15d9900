"""Progress display for several runs, and the table of their results."""

import shutil
import sys
import time
from collections.abc import Sequence
from statistics import mean, stdev

from training.seeds.seed_run import SeedRun

SECONDS_BETWEEN_LINES = 60


class Reporter:
    """Progress display: lines that are rewritten on a terminal; elsewhere one line a minute and run."""

    def __init__(self):
        self.is_terminal = sys.stdout.isatty()
        self.num_shown, self.shown_at = 0, 0.0

    def print_line(self, line: str) -> None:
        """Prints a line that stays."""
        self._clear()
        print(line, flush=True)

    def print_progress(self, runs: Sequence[SeedRun]) -> None:
        """Prints the progress of the runs if the last time is long enough ago."""
        if not self.is_terminal and time.monotonic() - self.shown_at < SECONDS_BETWEEN_LINES:
            return
        self.shown_at = time.monotonic()
        lines = [run.progress() for run in runs]
        if self.is_terminal:
            self._clear()
            width = shutil.get_terminal_size().columns - 1
            lines, self.num_shown = [line[:width] for line in lines], len(lines)
        print("".join(f"{line}\n" for line in lines), end="", flush=True)

    def _clear(self) -> None:
        if self.num_shown:
            print(f"\x1b[{self.num_shown}A\x1b[J", end="")
            self.num_shown = 0


def figures(results: dict) -> dict[str, float]:
    """The figures of one run by the headings of the table: perplexities, and sentence F1 in per cent."""
    found = {"validation": results["validation_perplexity"]}
    if "test_perplexity" in results:
        found["test"] = results["test_perplexity"]
    for rule, heading in {"right": "F1 {}", "none": "F1 {}, no bias"}.items():
        for layer, scores in results.get("sentence_f1_by_layer", {}).items():
            found[heading.format(layer)] = 100 * scores[rule]
    return found


def results_table(results: dict[int, dict]) -> str:
    """A row for each seed, and their mean, standard deviation (of a sample), minimum and maximum."""
    figures_by_seed = {seed: figures(content) for seed, content in results.items()}
    header = list(next(iter(figures_by_seed.values())))
    columns = [[found[name] for found in figures_by_seed.values()] for name in header]
    rows: dict[object, list[float]] = {seed: list(found.values()) for seed, found in figures_by_seed.items()}
    rows["mean"] = [mean(column) for column in columns]
    if len(results) > 1:
        rows["s.d."] = [stdev(column) for column in columns]
    rows |= {"min": [min(column) for column in columns], "max": [max(column) for column in columns]}
    lines = ["seed      " + "  ".join(f"{name:>8}" for name in header)]
    for first, values in rows.items():
        cells = (f"{value:>{max(len(name), 8)}.2f}" for name, value in zip(header, values, strict=True))
        lines.append(f"{first:<8}  {'  '.join(cells)}")
    return "\n".join(lines)
