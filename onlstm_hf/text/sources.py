"""Sources of text for building a tokenizer: files, strings or rows of a dataset."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..utils.files import read_text_file

# Pieces of long lines end with a word.
_PIECE_LENGTH = 1_000_000
_PIECE = re.compile(rf"(?s).{{1,{_PIECE_LENGTH}}}[^ ]*")
# Names of text files, unlike words such as "and/or", "U.S" and "3.5".
_TEXT_FILE = re.compile(r"\S*\.(?:txt|text|tok|tokens|raw|train|valid|dev|test|md)")


def read_source(source: str | os.PathLike | Iterable[Any], text_column: str) -> Iterator[str]:
    """Yields the texts of a source, one line or row at a time.

    Args:
        source, text_column: see `build_word_tokenizer`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: A file is not UTF-8 or has no words, or the source has no text in that column.
    """
    if isinstance(source, Mapping):
        raise ValueError(f"the source has several splits ({', '.join(map(str, source))}); choose one of them")
    if isinstance(source, (str, os.PathLike)):
        source = [Path(source)]
    elif isinstance(source, (list, tuple)) and _are_file_names(source):
        source = [Path(path) for path in source]

    for item in source:
        if isinstance(item, os.PathLike):
            yield from _read_pieces(Path(item))
        elif isinstance(item, str):
            yield item
        elif isinstance(item, Mapping) and isinstance(item.get(text_column), str):
            yield item[text_column]
        elif isinstance(item, Mapping) and text_column in item:
            raise ValueError(f"a row of the dataset has no text in the column {text_column!r}: {item[text_column]!r}")
        elif isinstance(item, Mapping):
            columns = ", ".join(f"{name} ({type(value).__name__})" for name, value in item.items())
            raise ValueError(f"the dataset has no text in the column {text_column!r}; its columns are {columns}")
        else:
            raise ValueError(f"the source must give strings, paths or dataset rows, not {type(item).__name__}")


def _are_file_names(items: Sequence[Any]) -> bool:
    """Returns whether all items are strings, and the first is a file or all have suffixes of text files."""
    if not items or not all(isinstance(item, str) for item in items):
        return False
    return os.path.isfile(items[0]) or all(_TEXT_FILE.fullmatch(item) for item in items)


def _read_pieces(path: Path) -> Iterator[str]:
    """Yields a file's lines, long ones in pieces, as a tokenizer needs many times the memory of its input."""
    if not path.is_file():
        raise FileNotFoundError(f"no text file at {path}; text itself is a list or another iterable of strings")
    for line in read_text_file(path):
        yield from (line,) if len(line) <= _PIECE_LENGTH else map(re.Match.group, _PIECE.finditer(line))
