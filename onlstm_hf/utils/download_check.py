"""Files as the Hub knows them: by their checksums, which tell whether one arrived as it is there."""

import hashlib
import os
import re
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_NAME, cached_file

PLACE = ("cache_dir", "revision", "subfolder")


def hub_checksum(content: bytes | Path, is_large: bool) -> str:
    """What the Hub announces for a file: the SHA-256 of one in its storage of large files, Git's hash of another.

    Args:
        content: bytes, or the file that has them.
        is_large: which of the two.
    """
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    checksum = hashlib.sha256() if is_large else hashlib.sha1(b"blob %d\0" % size)
    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        while part := file.read(2**20):
            checksum.update(part)
    return checksum.hexdigest()


def check_download(name: str | os.PathLike, **place) -> None:
    """Raises an error if the cache holds other contents than the repository; the Hub's client compares sizes alone.

    In the cache a file is a link to one that is named by the checksum that the Hub announced. Where the system has no
    links, that is not known, and nothing is checked. Neither is code, of which Transformers runs a copy.

    Args:
        name: a repository on the Hub. Nothing is checked in a folder of the user's own.
        place: `cache_dir`, `revision` and `subfolder` that it was loaded with.

    Raises:
        OSError: if a file is damaged. It is removed, so that the next attempt downloads it again.
    """
    if Path(name).exists():
        return
    for link in _links(name, **place):
        announced = Path(os.readlink(link)).name
        if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", announced) or link.suffix == ".py":
            continue
        blob = link.resolve()
        if hub_checksum(blob, is_large=len(announced) == 64) != announced:
            with suppress(OSError):  # a cache that others own
                blob.unlink()
            raise OSError(
                f"{link.name} of {name} did not arrive as it is on the Hub: it has another checksum. "
                + (f"Delete {blob} and try again" if blob.exists() else "The damaged file is removed; try again")
            )


def _links(name: str | os.PathLike, **place) -> list[Path]:
    """The links in the folder of the cache that holds the files of this repository and revision."""
    for filename in (CONFIG_NAME, SAFE_WEIGHTS_NAME):
        with suppress(OSError):  # there is none
            if found := cached_file(name, filename, local_files_only=True, **place):
                return [path for path in sorted(Path(found).parent.iterdir()) if path.is_symlink() and path.exists()]
    return []
