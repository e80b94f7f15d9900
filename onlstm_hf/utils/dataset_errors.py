"""Errors of loading Hugging Face datasets that say what is wrong with the name: it may be meant for a folder here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reported_dataset_errors(source: str, what: str) -> Iterator[None]:
    """Turns whatever loading a dataset raises into a `ValueError`.

    Args:
        source: the name of the dataset on the Hub, or its folder.
        what: is loaded of it, for the message.

    Raises:
        FileNotFoundError: before anything is loaded, if there is no such folder, and no repository can have the name.
    """
    is_here = Path(source).exists()
    if not is_here and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
        raise FileNotFoundError(f"cannot load {what}: there is no file or folder {source}")
    try:
        yield
    except Exception as error:  # its own exceptions share no base class
        hint = "" if is_here else f"there is no file or folder {source} here, and as a dataset on the Hub: "
        raise ValueError(f"cannot load {what}: {hint}{error}") from error
