"""Runs a script that ends as soon as the process that started it does, and that is alone in its folder.

    python -m training.seeds.supervised FOLDER SCRIPT [ARGUMENT ...]

Its standard input must be a pipe whose other end the starting process holds and never writes to: the pipe ends with
that process, however it ends, on every system.
"""

import os
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_WAIT = 20.0


@contextmanager
def locked_folder(folder: Path, longest_wait: float = LONGEST_WAIT) -> Iterator[None]:
    """Keeps every other process that asks for it out of a folder during the block, or until this process is killed.

    Windows, and file systems that know no locks, keep nobody out.

    Args:
        folder: it must exist.
        longest_wait: seconds to wait for another process, which may be about to end.

    Raises:
        ValueError: if another process still has the folder then.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor, start = os.open(folder, os.O_RDONLY), time.monotonic()
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() - start > longest_wait:
                    raise ValueError(f"another process is at work in {folder}") from error
                time.sleep(0.1)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


def main() -> None:
    folder, script, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = [script, *arguments]
    with locked_folder(Path(folder)):
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(str(error))
