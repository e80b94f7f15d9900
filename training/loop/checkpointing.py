"""Checkpoint folders that are either whole or not there, whenever the process dies, and that show later damage."""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch.distributed import DistError
from transformers.utils import logging as transformers_logging

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


def recover_folder(target: Path) -> bool:
    """Undoes what an interrupted `replaced_folder` left behind. Returns whether `target` exists."""
    previous = _beside(target, "previous")
    if previous.exists():
        if target.exists():
            shutil.rmtree(previous)
        else:
            os.rename(previous, target)
    return target.exists()


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
    seen = [name for name in ("last", "best", "log.jsonl") if (output_dir / name).exists()]
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
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{file_checksum(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8", newline="\n")


def check_checksums(folder: Path) -> None:
    """Raises a `ValueError` that names a file that is missing, is not the one that was written, or was added."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        expected_by_name = {name: expected for expected, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as error:
        raise ValueError(f"{CHECKSUMS} is missing or damaged") from error
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != CHECKSUMS and name not in expected_by_name:
            raise ValueError(f"{CHECKSUMS} does not name {name}: the list is damaged, or the file was added later")
    for name, expected in expected_by_name.items():
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if file_checksum(folder / name) != expected:
            raise ValueError(f"{name} is damaged: it is not what was written (by its checksum in {CHECKSUMS})")


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


@contextmanager
def reported_failure_to_write(target: Path) -> Iterator[None]:
    """Turns what the libraries raise where a disk is full into an `OSError` that says what could not be written."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, DistError) or "gloo" in str(error):
            raise  # another process is gone; nothing is wrong with the disk
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        if isinstance(error, RuntimeError):  # PyTorch's, which says nothing of the disk
            reason = f"a file is not whole, as on a full disk ({reason})"
        raise OSError(
            f"{target} cannot be written: {reason}. Once that is fixed, --resume continues from the last checkpoint"
        ) from error


@contextmanager
def without_notices() -> Iterator[None]:
    """Keeps progress bars of single files, and the notice that tied weights are stored once, off the terminal."""
    had_bars, logger = transformers_logging.is_progress_bar_enabled(), logging.getLogger("accelerate.utils.other")
    level = logger.level
    transformers_logging.disable_progress_bar()
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        if had_bars:
            transformers_logging.enable_progress_bar()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{suffix}")
