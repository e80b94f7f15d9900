"""Files that the subcommands write: new ones only, and complete ones only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ..utils.files import written_file


def check_is_new(path: Path) -> None:
    """Raises an error if something of this name exists, or the folder that it would be written into does not.

    Raises:
        FileExistsError, FileNotFoundError: as the cause is.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists already; choose another name or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")


@contextmanager
def text_output(path: str | None) -> Iterator[TextIO]:
    """A new text file of this name, which appears once it is complete; standard output if there is no name."""
    if path is None:
        yield sys.stdout
        return
    check_is_new(Path(path))
    with written_file(path) as file:
        yield file
