"""Training text as token ids in memory-mapped files."""

from array import array
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import PartialState


class EncodedText(NamedTuple):
    """Token ids `[N]` (int32) of all sentences, and the end of each sentence in them `[S]` (int64)."""

    ids: torch.Tensor
    ends: torch.Tensor


def store_encoded(sentences: Iterable[list[int]], folder: Path) -> EncodedText:
    """Writes a text to files, once per host, and maps them into the memory of each process.

    The files are unlinked at once. The system frees them when the last process ends. Only the first process of a host
    reads the sentences. Hosts may share the folder, which needs four bytes per token and eight per sentence.

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
            end = 0
            with open(ids, "wb") as id_file, open(ends, "wb") as end_file:
                for sentence in sentences:
                    end += len(sentence)
                    id_file.write(array("i", sentence))
                    end_file.write(array("q", [end]))
        state.wait_for_everyone()
        text = EncodedText(_mapped(ids, torch.int32), _mapped(ends, torch.int64))
        state.wait_for_everyone()
    finally:
        if state.is_local_main_process:
            for path in (ids, ends):
                with suppress(OSError):  # Windows cannot unlink an open file; the next run overwrites it
                    path.unlink(missing_ok=True)
    if not len(text.ids):
        raise ValueError("the training text is empty")
    return text


def _mapped(path: Path, dtype: torch.dtype) -> torch.Tensor:
    size = path.stat().st_size // dtype.itemsize
    return torch.from_file(str(path), size=size, dtype=dtype) if size else torch.empty(0, dtype=dtype)
