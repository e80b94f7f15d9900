"""The training text as token ids in memory-mapped files: the system reads from them what a batch needs."""

from array import array
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import PartialState


class EncodedText(NamedTuple):
    """A text, however large: both tensors may lie in files.

    Attributes:
        ids: `[N]` int32, the tokens of all sentences one after the other.
        ends: `[S]` int64, the number of tokens up to the end of each sentence.
    """

    ids: torch.Tensor
    ends: torch.Tensor


def store_encoded(sentences: Iterable[list[int]], folder: Path) -> EncodedText:
    """Writes a text to files, once on each host, and maps them into the memory of each of its processes.

    The files lose their names at once, and the system removes them when the last process ends, however it does.

    Args:
        sentences: token ids. They are read in the first process of a host only.
        folder: where there is room for four bytes a token. It may be shared by hosts.

    Raises:
        ValueError: if there is no sentence.
        OSError: if the files cannot be written, for instance because the disk is full.
    """
    state = PartialState()
    first_of_host = state.process_index - state.local_process_index
    ids, ends = (folder / f".{name}_{first_of_host}" for name in ("tokens", "sentence_ends"))
    try:
        if state.is_local_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            _write(sentences, ids, ends)
        state.wait_for_everyone()
        text = EncodedText(_mapped(ids, torch.int32), _mapped(ends, torch.int64))
        state.wait_for_everyone()
    finally:
        if state.is_local_main_process:
            for path in (ids, ends):
                with suppress(OSError):  # Windows keeps the name of an open file: the next run writes over it
                    path.unlink(missing_ok=True)
    if not len(text.ids):
        raise ValueError("the training text is empty")
    return text


def _write(sentences: Iterable[list[int]], ids: Path, ends: Path) -> None:
    end = 0
    with open(ids, "wb") as id_file, open(ends, "wb") as end_file:
        for sentence in sentences:
            end += len(sentence)
            id_file.write(array("i", sentence))
            end_file.write(array("q", [end]))


def _mapped(path: Path, dtype: torch.dtype) -> torch.Tensor:
    size = path.stat().st_size // dtype.itemsize
    return torch.from_file(str(path), size=size, dtype=dtype) if size else torch.empty(0, dtype=dtype)
