"""Clear errors for Hugging Face datasets that cannot be loaded, whose names may be meant as local folders."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reported_dataset_errors(source: str, what: str) -> Iterator[None]:
    """Turns any exception of loading a dataset into a `ValueError` that names the loaded part (`what`).

    A `FileNotFoundError` is raised immediately if `source` is neither a folder nor a valid name on the Hub.
    """
    is_local = Path(source).exists()
    if not is_local and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
        raise FileNotFoundError(f"cannot load {what}: there is no file or folder {source}")
    try:
        yield
    except Exception as error:  # the exceptions of `datasets` share no base class
        hint = "" if is_local else f"there is no file or folder {source} here, and as a dataset on the Hub: "
        raise ValueError(f"cannot load {what}: {hint}{error}") from error
