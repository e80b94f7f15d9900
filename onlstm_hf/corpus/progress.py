"""Progress of the tasks of a corpus: small files that the workers write and the command reads."""

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def shown_progress(folder: Path | None, tasks: int, completed: int) -> Iterator[None]:
    """Shows a progress bar over all tasks while the block runs, on standard error: its speed and the time left.

    Args:
        folder: that of the tasks' `TaskProgress`, which is emptied; `None` to show nothing.
        tasks: how many there are.
        completed: how many were completed before.
    """
    if folder is None:
        yield
        return
    folder.mkdir(exist_ok=True)
    for old_report in folder.iterdir():
        old_report.unlink()
    bar = tqdm(total=tasks, initial=completed, smoothing=0, miniters=0)
    interval = SECONDS_BETWEEN_READS if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
    has_ended = threading.Event()

    def follow() -> None:
        _show(bar, folder)
        while not has_ended.wait(interval):
            _show(bar, folder)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        _show(bar, folder)
        bar.close()


def _show(bar: tqdm, folder: Path) -> None:
    reports = [json.loads(text) for path in folder.glob("*.json") if (text := path.read_text())]
    sentences = sum(count for _, count in reports)
    rate = sentences / max(bar.format_dict["elapsed"], SECONDS_BETWEEN_READS)
    bar.n = bar.initial + sum(share for share, _ in reports)
    counts = f"{sentences:,} sentences, {rate:,.0f} a second" if reports else "loading the model"
    bar.bar_format = f"{{percentage:3.0f}}%|{{bar}}| {counts} [{{elapsed}}<{{remaining}}]"
    bar.refresh()
