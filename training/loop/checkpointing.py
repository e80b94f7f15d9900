"""Checkpoint folders that are either whole or not there, whenever the process dies, and that show later damage."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import gather_object

# In a checkpoint folder: the checksums of its files, in the format of `sha256sum --check`.
CHECKSUMS = "SHA256SUMS"


@contextmanager
def replaced_folder(target: Path, accelerator: Accelerator) -> Iterator[Path]:
    """Gives every process the same empty folder to write to, which takes the place of `target` after the block.

    A process that dies before the end leaves the old folder, or, between the two renames, a hidden one that
    `recover_folder` brings back.
    """
    temporary, previous = _beside(target, "incomplete"), _beside(target, "previous")
    if accelerator.is_main_process:
        recover_folder(target)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    accelerator.wait_for_everyone()
    try:
        yield temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # on a full disk its room is needed
        raise
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        for path in temporary.rglob("*"):
            if path.is_file():
                sync(path)
        if target.exists():
            os.rename(target, previous)
        os.rename(temporary, target)
        shutil.rmtree(previous, ignore_errors=True)
    accelerator.wait_for_everyone()


def sync(path: Path) -> None:
    """Waits until the content of a file is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def recover_folder(target: Path) -> None:
    """Undoes what an interrupted `replaced_folder` left behind."""
    previous = _beside(target, "previous")
    if previous.exists():
        if target.exists():
            shutil.rmtree(previous)
        else:
            os.rename(previous, target)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{suffix}")


def find_checkpoint(output_dir: Path, resume: bool, accelerator: Accelerator) -> bool:
    """Returns whether a run resumes from `last/`; an earlier run is not overwritten unasked.

    Raises:
        FileExistsError: if there is an earlier run that should not be resumed.
        ValueError: if the processes do not share the folder, for instance because each host has a disk of its own.
    """
    if accelerator.is_main_process:
        for name in ("best", "last"):
            recover_folder(output_dir / name)
    accelerator.wait_for_everyone()
    seen = [name for name in ("last", "best", "results.json") if (output_dir / name).exists()]
    found, *others = gather_object([seen])
    if any(also_seen != found for also_seen in others):
        raise ValueError(
            f"the processes of this run see different files in {output_dir}: choose an output_dir on a disk that all "
            "hosts share"
        )
    if found and not resume:
        raise FileExistsError(
            f"{output_dir} holds an earlier run ({', '.join(found)}): pass --resume to continue it, or choose "
            "another output_dir"
        )
    return "last" in found


def write_checksums(folder: Path) -> None:
    """Writes the checksums of all files in a folder to one file in it."""
    lines = (f"{line}\n" for line in _checksum_lines(folder))
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8", newline="\n")


def check_checksums(folder: Path) -> None:
    """Raises a `ValueError` that names the files which are missing, were changed or were added."""
    path = folder / CHECKSUMS
    written = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if differing := {*written} ^ {*_checksum_lines(folder)}:
        names = sorted({line.partition("  ")[2] or CHECKSUMS for line in differing})
        raise ValueError(
            f"the checkpoint {folder} is damaged: {', '.join(names)} (by {CHECKSUMS}). Start another output_dir; "
            "train_lm.py can begin with --init_from and the other checkpoint of the run"
        )


def _checksum_lines(folder: Path) -> list[str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    return [f"{file_checksum(path)}  {path.relative_to(folder).as_posix()}" for path in paths]


def file_checksum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    checksum = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            checksum.update(part)
    return checksum.hexdigest()


@contextmanager
def reported_damage(name: str) -> Iterator[None]:
    """Turns whatever reading a damaged file raises into a `ValueError` that says which file it is."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{name} cannot be loaded: {str(error) or type(error).__name__}") from error
