"""Progress of corpus tasks: workers write small files, and the command reads them."""

import json
import shutil
import sys
from pathlib import Path

from tqdm import tqdm

SECONDS_BETWEEN_UPDATES = 0.5
SECONDS_BETWEEN_LINES = 30.0  # if standard error is not a terminal


def report_progress(folder: Path | None, rank: int, share: float, num_sentences: int) -> None:
    """Writes the share of a task's input that is done, and the number of sentences, unless the folder is `None`."""
    if folder is not None:
        Path(folder, f"{rank:05d}.json").write_text(json.dumps([share, num_sentences]))


class ProgressBar(tqdm):
    """Progress bar over all tasks, of which earlier runs completed some, on standard error.

    It empties the local folder of `report_progress`; without one there is no bar.
    """

    def __init__(self, folder: Path | None, tasks: int, completed: int):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        self.folder = folder
        super().__init__(
            desc="loading the model",
            total=tasks,
            initial=completed,
            mininterval=SECONDS_BETWEEN_UPDATES if sys.stderr.isatty() else SECONDS_BETWEEN_LINES,
            miniters=0,
            smoothing=0,
            bar_format="{percentage:3.0f}%|{bar}| {desc} [{elapsed}<{remaining}]",
            disable=folder is None,
        )

    def read_reports(self) -> None:
        """Shows the reports of all tasks."""
        if self.disable:
            return
        reports = [json.loads(text) for path in self.folder.glob("*.json") if (text := path.read_text())]
        if reports:
            num_sentences = sum(number for _, number in reports)
            rate = num_sentences / max(self.format_dict["elapsed"], SECONDS_BETWEEN_UPDATES)
            noun = "sentence" if num_sentences == 1 else "sentences"
            self.set_description_str(f"{num_sentences:,} {noun}, {rate:,.0f} a second", refresh=False)
            self.update(self.initial + sum(share for share, _ in reports) - self.n)
