"""Processes that work in one folder, and processes that train in lockstep."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import torch
from accelerate import Accelerator
from filelock import FileLock, Timeout

from training.loop.task import TrainingBatch

# Seconds to wait for another process, which may be about to end.
LONGEST_WAIT = 10.0
# Batches between two agreements on how many of them every process has.
BATCHES_AT_ONCE = 64


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keeps every other process that asks for it out of a folder during the block, or until this process is killed.

    A folder that does not exist is created, and removed afterwards if it is still empty.

    Raises:
        ValueError: if another process still has the folder after `LONGEST_WAIT`.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=LONGEST_WAIT)
    except Timeout as error:
        raise ValueError(f"{folder} is in use: another process is at work in it") from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file, and the library does it there
            os.unlink(lock.lock_file)  # while it is held: afterwards it may be another's
        lock.release()
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def in_lockstep(batches: Iterator[TrainingBatch], accelerator: Accelerator) -> Iterator[TrainingBatch]:
    """Yields the batches of this process until any process has no more: an update needs one of each."""
    num_common = BATCHES_AT_ONCE
    while num_common == BATCHES_AT_ONCE:
        own = list(islice(batches, BATCHES_AT_ONCE))
        num_common = int(accelerator.gather(torch.tensor([len(own)], device=accelerator.device)).min())
        yield from own[:num_common]
