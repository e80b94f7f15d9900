"""Output folder of a run: its lock, and checkpoint folders that are replaced atomically and have checksums."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import gather_object
from filelock import FileLock, Timeout

# Seconds to wait for the lock of a folder: the other process may be about to end.
LONGEST_WAIT = 10.0
# File in each checkpoint folder with the checksums of the others, in the format of `sha256sum --check`.
CHECKSUMS = "SHA256SUMS"


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks a folder during the block. The lock also ends when this process is killed.

    A missing folder is created, and removed afterwards if it is still empty. A `ValueError` says that another process
    still holds the lock after `LONGEST_WAIT`.
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


@contextmanager
def replaced_folder(target: Path, accelerator: Accelerator) -> Iterator[Path]:
    """Yields an empty folder, the same in every process, that replaces `target` after the block.

    If a process dies before the end, the old folder stays. Between the two renames it is a hidden folder, which
    `recover_folder` restores.
    """
    temporary, previous = target.with_name(f".{target.name}.incomplete"), _previous(target)
    if accelerator.is_main_process:
        recover_folder(target)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    accelerator.wait_for_everyone()
    try:
        yield temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # frees space: the disk may be full
        raise
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        for path in _files_in(temporary):
            sync(path)
        if target.exists():
            os.rename(target, previous)
        os.rename(temporary, target)
        shutil.rmtree(previous, ignore_errors=True)
    accelerator.wait_for_everyone()


def recover_folder(target: Path) -> None:
    """Cleans up after an interrupted `replaced_folder`."""
    previous = _previous(target)
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
    elif previous.exists():
        os.rename(previous, target)


def _previous(target: Path) -> Path:
    return target.with_name(f".{target.name}.previous")


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sync(path: Path) -> None:
    """Waits until the content of a file is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def find_checkpoint(output_dir: Path, resume: bool, accelerator: Accelerator) -> bool:
    """Returns whether the run resumes from `last/`. Raises an error if it may not, or hosts do not share a folder."""
    if accelerator.is_main_process:
        for name in ("best", "last"):
            recover_folder(output_dir / name)
    accelerator.wait_for_everyone()
    existing = [name for name in ("last", "best", "results.json") if (output_dir / name).exists()]
    if any(names != existing for names in gather_object([existing])):
        raise ValueError(f"processes see different files in {output_dir}: use a folder on a disk that all hosts share")
    if existing and not resume:
        names = ", ".join(existing)
        raise FileExistsError(f"{output_dir} holds an earlier run ({names}): pass --resume, or another output_dir")
    return "last" in existing


def write_checksums(folder: Path) -> None:
    (folder / CHECKSUMS).write_text("\n".join(_checksum_lines(folder)) + "\n", encoding="utf-8", newline="\n")


def check_checksums(folder: Path) -> None:
    """Raises a `ValueError` that names missing, changed and added files."""
    path = folder / CHECKSUMS
    written = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if differing := {*written} ^ {*_checksum_lines(folder)}:
        names = sorted({line.partition("  ")[2] or CHECKSUMS for line in differing})
        raise ValueError(
            f"the checkpoint {folder} is damaged: {', '.join(names)} (by {CHECKSUMS}). Start another output_dir; "
            "train_lm.py can start from the other checkpoint of the run with --init_from"
        )


def _checksum_lines(folder: Path) -> list[str]:
    paths = [path for path in _files_in(folder) if path != folder / CHECKSUMS]
    return [f"{file_checksum(path)}  {path.relative_to(folder).as_posix()}" for path in paths]


def file_checksum(path: str | os.PathLike) -> str:
    checksum = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            checksum.update(part)
    return checksum.hexdigest()


@contextmanager
def reported_damage(name: str) -> Iterator[None]:
    """Turns any error from reading a damaged file into a `ValueError` that names the file."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{name} cannot be loaded: {str(error) or type(error).__name__}") from error
