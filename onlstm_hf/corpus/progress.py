"""Progress of the tasks of a corpus: small files that the workers write and the command reads."""

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from datatrove.data import Document
from tqdm import tqdm

SECONDS_BETWEEN_WRITES = 1.0
SECONDS_BETWEEN_READS = 0.5
SECONDS_BETWEEN_LINES = 30.0  # where standard error is a file


class TaskProgress:
    """Progress of one task.

    Args:
        folder: a local folder, or `None` to tell nothing.
        rank: the task.
    """

    def __init__(self, folder: str | None, rank: int):
        self._path = None if folder is None else Path(folder, f"{rank:05d}.json")
        self._share, self._sentences, self._written = 0.0, 0, 0.0

    def follow(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents as they are. A reader tells in `metadata["share_read"]` how much of its task it has read."""
        for document in documents:
            self._share = document.metadata.get("share_read", 0.0)
            yield document

    def add(self, sentences: int) -> None:
        """Counts sentences that are done."""
        self._sentences += sentences
        if time.monotonic() - self._written > SECONDS_BETWEEN_WRITES:
            self._write()

    def finish(self) -> None:
        """Counts the task as done."""
        self._share = 1.0
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            self._path.write_text(json.dumps([self._share, self._sentences]))
            self._written = time.monotonic()


class CorpusProgress:
    """A progress bar over all tasks, on standard error while the block runs: sentences a second and the time left.

    Args:
        folder: that of the tasks' `TaskProgress`.
        tasks: how many there are.
        completed: how many were completed before.
    """

    def __init__(self, folder: str, tasks: int, completed: int):
        self._folder = Path(folder)
        self._bar = tqdm(total=tasks, initial=completed, smoothing=0, miniters=0)
        self._interval = SECONDS_BETWEEN_READS if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "CorpusProgress":
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._bar.close()

    def _follow(self) -> None:
        self._show()
        while not self._ended.wait(self._interval):
            self._show()
        self._show()

    def _show(self) -> None:
        reports = [json.loads(text) for path in self._folder.glob("*.json") if (text := path.read_text())]
        sentences = sum(count for _, count in reports)
        rate = sentences / max(self._bar.format_dict["elapsed"], SECONDS_BETWEEN_READS)
        self._bar.n = self._bar.initial + sum(share for share, _ in reports)
        counts = f"{sentences:,} sentences, {rate:,.0f} a second" if reports else "loading the model"
        self._bar.bar_format = f"{{percentage:3.0f}}%|{{bar}}| {counts} [{{elapsed}}<{{remaining}}]"
        self._bar.refresh()
