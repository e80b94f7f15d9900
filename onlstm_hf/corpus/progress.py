"""Progress of corpus tasks: workers write small files, and the command reads them."""

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
SECONDS_BETWEEN_LINES = 30.0  # if standard error is not a terminal


class TaskProgress:
    """Progress of one task, which writes its reports into a local folder, unless that is `None`."""

    def __init__(self, folder: str | None, rank: int):
        self._path = None if folder is None else Path(folder, f"{rank:05d}.json")
        self._share, self._sentences, self._written = 0.0, 0, 0.0

    def follow(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yields the documents and records `metadata["share_read"]`, the share of the task that a reader has read."""
        for document in documents:
            self._share = document.metadata.get("share_read", 0.0)
            yield document

    def add(self, sentences: int) -> None:
        """Counts finished sentences."""
        self._sentences += sentences
        if time.monotonic() - self._written > SECONDS_BETWEEN_WRITES:
            self._write()

    def finish(self) -> None:
        """Reports the task as finished."""
        self._share = 1.0
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            self._path.write_text(json.dumps([self._share, self._sentences]))
            self._written = time.monotonic()


@contextmanager
def shown_progress(folder: Path | None, tasks: int, completed: int) -> Iterator[None]:
    """Shows a progress bar over all tasks on standard error while the block runs; a folder `None` shows nothing.

    The folder of the tasks' `TaskProgress` is emptied first. `completed` tasks were completed before.
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
    plural = "" if sentences == 1 else "s"
    counts = f"{sentences:,} sentence{plural}, {rate:,.0f} a second" if reports else "loading the model"
    bar.bar_format = f"{{percentage:3.0f}}%|{{bar}}| {counts} [{{elapsed}}<{{remaining}}]"
    bar.refresh()
