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
from pathlib import Path

LONGEST_WAIT = 20.0


def lock_folder(folder: Path, longest_wait: float = LONGEST_WAIT) -> None:
    """Keeps every other process that calls this out of a folder, until this process ends, however it ends.

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
        return
    descriptor, start = os.open(folder, os.O_RDONLY), time.monotonic()
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() - start > longest_wait:
                raise ValueError(f"another process is at work in {folder}") from error
            time.sleep(0.1)
        except OSError:
            return


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


def main() -> None:
    folder, script, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        lock_folder(Path(folder))
    except ValueError as error:
        sys.exit(f"{Path(script).name}: {error}")
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
