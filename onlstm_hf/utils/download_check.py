"""Files as the Hub knows them: by their checksums, which tell whether one arrived as it is there."""

import hashlib
import os
import re
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from threading import get_ident

from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_NAME, cached_file

PLACE = ("cache_dir", "revision", "subfolder")
# A file in the cache of a repository, made when its files were last checked.
MARK = ".checked_by_onlstm_hf"


def hub_checksum(content: bytes | Path, is_large: bool) -> str:
    """What the Hub announces for a file: the SHA-256 of one in its storage of large files, Git's hash of another.

    Args:
        content: bytes, or the file that has them.
        is_large: which of the two.
    """
    # `huggingface_hub.utils.sha` has the same, but this file travels with checkpoints and imports only Transformers.
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    checksum = hashlib.sha256() if is_large else hashlib.sha1(b"blob %d\0" % size)
    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        while part := file.read(2**20):
            checksum.update(part)
    return checksum.hexdigest()


def check_download(name: str | os.PathLike, **place) -> None:
    """Raises an error if a file was downloaded that is not the one on the Hub, whose client compares sizes alone.

    Each download is checked once. In the cache a file is a link, made when it was downloaded, to one that is named by
    the checksum that the Hub announced. Where the system has no links, that is not known, and nothing is checked.
    Neither is code, of which Transformers runs a copy.

    Args:
        name: a repository on the Hub. Nothing is checked in a folder of the user's own.
        place: `cache_dir`, `revision` and `subfolder` that it was loaded with.

    Raises:
        OSError: if a file is damaged. It is removed, so that the next attempt downloads it again.
    """
    cache = None if Path(name).exists() else _cache(name, **place)
    if cache is None or not os.access(cache, os.W_OK):  # nothing was downloaded into a cache that others own
        return
    mark = cache / MARK
    last_check = mark.stat().st_mtime_ns if mark.exists() else 0
    new_mark = cache / f"{MARK}.{os.getpid()}.{get_ident()}"
    new_mark.touch()  # before the files are listed, so that what arrives meanwhile is checked the next time
    try:
        for link in sorted(cache.glob("snapshots/**/*")):
            if link.is_symlink() and link.exists() and link.lstat().st_mtime_ns >= last_check:
                _check_file(link, name)
        new_mark.replace(mark)
    finally:
        new_mark.unlink(missing_ok=True)


def _check_file(link: Path, repository: str | os.PathLike) -> None:
    announced = Path(os.readlink(link)).name
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", announced) or link.suffix == ".py":
        return
    blob = link.resolve()
    if hub_checksum(blob, is_large=len(announced) == 64) != announced:
        with suppress(OSError):  # in a store that others own
            blob.unlink()
        raise OSError(
            f"{link.name} of {repository} did not arrive as it is on the Hub: it has another checksum. "
            + (f"Delete {blob} and try again" if blob.exists() else "The damaged file is removed; try again")
        )


def _cache(name: str | os.PathLike, **place) -> Path | None:
    """The folder of the cache that holds all that was downloaded of a repository."""
    for filename in (CONFIG_NAME, SAFE_WEIGHTS_NAME):
        with suppress(OSError):  # there is none
            if found := cached_file(name, filename, local_files_only=True, **place):
                return next(folder.parent for folder in Path(found).parents if folder.name == "snapshots")
    return None
