"""Lock of an output folder, and batches in lockstep across processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import torch
from accelerate import Accelerator
from filelock import FileLock, Timeout

from training.loop.task import TrainingBatch

# Seconds to wait for the lock: the other process may be about to end.
LONGEST_WAIT = 10.0
# Batches between two synchronisations of the number of remaining batches.
BATCHES_AT_ONCE = 64


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks a folder during the block. The lock also ends when this process is killed.

    A missing folder is created, and removed afterwards if it is still empty.

    Raises:
        ValueError: if another process still holds the lock after `LONGEST_WAIT`.
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
        with suppress(OSError):  # on Windows an open file cannot be removed, and filelock removes it later
            os.unlink(lock.lock_file)  # before the release: afterwards another process may hold it
        lock.release()
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def in_lockstep(batches: Iterator[TrainingBatch], accelerator: Accelerator) -> Iterator[TrainingBatch]:
    """Yields the batches of this process until any process has none left: an update needs a batch of each process."""
    num_common = BATCHES_AT_ONCE
    while num_common == BATCHES_AT_ONCE:
        block = list(islice(batches, BATCHES_AT_ONCE))
        num_common = int(accelerator.gather(torch.tensor([len(block)], device=accelerator.device)).min())
        yield from block[:num_common]
