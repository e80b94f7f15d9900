"""Checkpoint folders that are either whole or not there, whenever the process dies."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate import Accelerator
from transformers.utils import logging as transformers_logging


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
    yield temporary
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        for path in temporary.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        if target.exists():
            os.rename(target, previous)
        os.rename(temporary, target)
        shutil.rmtree(previous, ignore_errors=True)
    accelerator.wait_for_everyone()


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
    """Whether a run goes on from `last/` in its folder; what an earlier run left is not overwritten unasked.

    Raises:
        FileExistsError: if there is an earlier run that should not be resumed.
    """
    if accelerator.is_main_process:
        for name in ("best", "last"):
            recover_folder(output_dir / name)
    accelerator.wait_for_everyone()
    found = [name for name in ("last", "best", "log.jsonl") if (output_dir / name).exists()]
    if found and not resume:
        raise FileExistsError(
            f"{output_dir} holds an earlier run ({', '.join(found)}): pass --resume to go on from it, or choose "
            "another output_dir"
        )
    return "last" in found


@contextmanager
def reported_damage(name: str) -> Iterator[None]:
    """Turns whatever reading a damaged file raises into a `ValueError` that says which file it is."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{name} cannot be loaded: {error}") from error


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
