"""Reading of text files with clear errors, checksums of texts, and atomic writes of files and folders."""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def read_text_file(path: str | os.PathLike) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file; for errors see `check_is_text_file` and `read_lines`."""
    check_is_text_file(path)
    return read_lines(binary_lines(path), str(path))


def check_is_text_file(path: str | os.PathLike) -> None:
    """Raises an `IsADirectoryError` for a folder, and a `FileNotFoundError` if the path does not exist."""
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a text file")
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")


def check_writable(path: str | os.PathLike | None, endings: Collection[str] = (), is_new: bool = False) -> None:
    """Raises an `OSError` or `ValueError` before long work whose results could not be written; `None` is no file.

    A name must have one of the `endings`, if any are given. With `is_new` nothing of this name may exist.
    """
    if path is None:
        return
    path = Path(path)
    if is_new and path.exists():
        raise FileExistsError(f"{path} exists already; choose another name or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if endings and path.suffix.lower() not in endings:
        raise ValueError(f"cannot write {path}: the name must end in {', '.join(endings)}")


def binary_lines(path: str | os.PathLike) -> Iterator[bytes]:
    """Yields the lines of a file as bytes."""
    with open(path, "rb") as file:
        yield from file


def split_lines(text: str) -> list[str]:
    r"""Splits a text into lines at `\n` and `\r\n` only.

    `str.splitlines` also splits at characters that occur in words and JSON strings, such as U+2028 and U+0085.
    """
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_lines(lines: Iterable[bytes], source: str) -> Iterator[str]:
    """Decodes lines of text lazily; messages call the text `source`.

    Raises:
        ValueError: for a compressed text, a line that is not UTF-8 or has NUL characters, and at the end if all lines
            are blank.
    """
    has_words = False
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.startswith(b"\x1f\x8b"):
            raise ValueError(f"{source} is compressed; unpack it, for instance with `gzip -dc`")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{source} is not UTF-8: byte {error.object[error.start]:#04x} in line {number}; convert it to UTF-8"
            ) from error
        if "\0" in text:
            problem = "has NUL characters, as UTF-16 without a byte order mark does; convert it to UTF-8"
            raise ValueError(f"{source}, line {number}, {problem}")
        has_words = has_words or bool(text.strip())
        yield text
    if not has_words:
        raise ValueError(f"{source} is empty: it has no sentence")


def fingerprint(texts: Iterable[str]) -> str:
    """Returns a short checksum of texts and their order, used to detect changed data."""
    checksum = hashlib.sha256()
    for text in texts:
        checksum.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return checksum.hexdigest()[:16]


@contextmanager
def written_file(path: str | os.PathLike, binary: bool = False) -> Iterator[IO]:
    """Writes a file of UTF-8 text or bytes atomically: it replaces `path` only if the block ends without an error.

    An `OSError`, for instance because the disk is full, names the file.
    """
    path = Path(path)
    temporary = _temporary_name(path)
    try:
        with open(temporary, "wb") if binary else open(temporary, "w", encoding="utf-8", newline="\n") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None:  # without an errno, Python would show the file name instead of the message
            error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, content: dict | list) -> None:
    """Writes a JSON file atomically."""
    with written_file(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")


@contextmanager
def written_folder(path: Path) -> Iterator[Path]:
    """Creates a temporary folder, which is renamed to `path` only if the block ends without an error."""
    temporary = _temporary_name(path)
    # Left by a killed process with the same pid, which is common in containers.
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
