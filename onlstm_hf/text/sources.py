"""Sources of text for building a tokenizer: files, strings or rows of a dataset."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..utils.files import read_text_file

# Long lines are read in pieces that end with a word, as a tokenizer needs many times the memory of its input.
_PIECE = re.compile(r"(?s).{1,1000000}[^ ]*")
# Names of text files, unlike words such as "and/or", "U.S" and "3.5".
_TEXT_FILE = re.compile(r"\S*\.(?:txt|text|tok|tokens|raw|train|valid|dev|test|md)")


def read_source(source: str | os.PathLike | Iterable[Any], text_column: str) -> Iterator[str]:
    """Yields the texts of a source of `build_word_tokenizer`, one line or row at a time."""
    if isinstance(source, Mapping):
        raise ValueError(f"the source has several splits ({', '.join(map(str, source))}); choose one of them")
    if isinstance(source, (str, os.PathLike)):
        source = [Path(source)]
    elif isinstance(source, (list, tuple)) and _are_file_names(source):
        source = map(Path, source)

    for item in source:
        if isinstance(item, os.PathLike):
            for line in read_text_file(item):
                yield from _PIECE.findall(line)
            continue
        text = item.get(text_column) if isinstance(item, Mapping) else item
        if not isinstance(text, str):
            raise ValueError(
                f"the source must give strings, paths, or rows with text in the column {text_column!r}, not "
                f"{str(item)[:200]}"
            )
        yield text


def _are_file_names(items: Sequence[Any]) -> bool:
    """Returns whether all items are strings, and the first is a file or all have suffixes of text files."""
    if not items or not all(isinstance(item, str) for item in items):
        return False
    return os.path.isfile(items[0]) or all(_TEXT_FILE.fullmatch(item) for item in items)
