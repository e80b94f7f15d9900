"""Contents of folders, to compare them, and a full disk."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def names_in(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def contents(folder: str | Path) -> dict[str, bytes]:
    """Returns the bytes of each file below a folder, by its path there."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextmanager
def full_disk() -> Iterator[None]:
    """Files cannot become larger than 4 KiB in the block, as on a disk without space."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
