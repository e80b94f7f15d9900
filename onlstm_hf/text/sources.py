"""The texts that a tokenizer is built of: files, strings or rows of a dataset."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..utils.files import refuse_nul

_BLOCK_BYTES = 1 << 20
# Names of text files. Words such as "and/or", "U.S" and "3.5" are none.
_TEXT_FILE = re.compile(r"\S*\.(?:txt|text|tok|tokens|raw|train|valid|dev|test|md)")


def read_source(source: str | os.PathLike | Iterable[Any], text_column: str) -> Iterator[str]:
    """The texts of a source, a line or a row at a time.

    Args:
        source, text_column: see `build_word_tokenizer`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: The text is not UTF-8, or the source has no texts in that column.
    """
    if isinstance(source, Mapping):
        raise ValueError(f"the source has several splits ({', '.join(map(str, source))}); choose one of them")
    if isinstance(source, (str, os.PathLike)):
        source = [Path(source)]
    elif isinstance(source, (list, tuple)) and _are_file_names(source):
        source = [Path(path) for path in source]

    for item in source:
        if isinstance(item, os.PathLike):
            yield from _read_lines(Path(item))
        elif isinstance(item, str):
            yield item
        elif isinstance(item, Mapping) and isinstance(item.get(text_column), str):
            yield item[text_column]
        elif isinstance(item, Mapping):
            columns = ", ".join(f"{name} ({type(value).__name__})" for name, value in item.items())
            raise ValueError(f"the dataset has no text in the column {text_column!r}; its columns are {columns}")
        else:
            raise ValueError(f"the source must give strings, paths or dataset rows, not {type(item).__name__}")


def _are_file_names(items: Sequence[Any]) -> bool:
    """Returns whether all items are strings, and the first is a file or all are named as files of text are."""
    if not items or not all(isinstance(item, str) for item in items):
        return False
    return os.path.isfile(items[0]) or all(_TEXT_FILE.fullmatch(item) for item in items)


def _read_lines(path: Path) -> Iterator[str]:
    """Yields a file's lines; a line that is longer than a block comes in pieces, cut after a space."""
    if not path.is_file():
        raise FileNotFoundError(f"no text file at {path}; text itself is a list or another iterable of strings")
    position, block = 0, b""
    with path.open("rb") as file:
        while new := file.read(_BLOCK_BYTES):
            block += new
            end = max(block.rfind(b"\n"), block.rfind(b" ")) + 1
            yield from _decode(path, block[:end], position)
            position, block = position + end, block[end:]
    yield from _decode(path, block, position)


def _decode(path: Path, block: bytes, position: int) -> Iterator[str]:
    try:
        text = block.decode("utf-8" if position else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text: byte {block[error.start]:#04x} at position {position + error.start}; "
            "convert the file to UTF-8"
        ) from error
    refuse_nul(text, str(path))
    return iter(text.replace("\r\n", "\n").split("\n"))
