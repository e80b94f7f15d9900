"""One process at a time in a folder, and processes that end with the one that started them."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

LONGEST_WAIT = 10.0
SECONDS_BETWEEN_LOOKS = 0.5
# The environment variable by which a process tells one that it starts to end with it: its own number.
PARENT = "ONLSTM_PARENT"
# The environment variable in which a script notes the process that started it, before imports that take seconds: where
# that process dies meanwhile, the script has another parent when it can look.
STARTED_BY = "ONLSTM_STARTED_BY"
# One of these is set by `torchrun`, and by `accelerate launch` for several processes and for one.
SET_BY_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "ACCELERATE_DYNAMO_USE_FULLGRAPH")


@contextmanager
def locked_folder(folder: Path, longest_wait: float | None = None) -> Iterator[None]:
    """Keeps every other process that asks for it out of a folder during the block, or until this process is killed.

    The folder is made where there is none, and removed afterwards if it was made and nothing is in it.

    Args:
        folder: for instance the `output_dir` of a run.
        longest_wait: seconds to wait for another process, which may be about to end; by default `LONGEST_WAIT`.

    Raises:
        ValueError: if another process still has the folder then.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=LONGEST_WAIT if longest_wait is None else longest_wait)
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


def end_with_parent() -> None:
    """Ends this process soon after the one that started it, however that ended: a launcher, or `train_seeds.py`.

    A run that was started by hand goes on without its shell.
    """
    parent = int(os.environ.get(PARENT, 0))
    if not parent and any(name in os.environ for name in SET_BY_LAUNCHERS):
        parent = int(os.environ.get(STARTED_BY) or os.getppid())
    if parent:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    # Where a process dies, Unix gives its children another parent, and Windows leaves them the number of the dead one.
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
