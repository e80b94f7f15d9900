"""Output files of the subcommands: new ones only, complete ones only, and resumable partial output."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..utils.files import write_json


def check_is_new(path: Path) -> None:
    """Raises an error if something of this name exists, or the folder that it would be written into does not.

    Raises:
        FileExistsError, FileNotFoundError: as the cause is.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists already; choose another name or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")


@contextmanager
def partial_output(
    path: Path, settings: dict[str, Any], sentences: Iterator[str], is_folder: bool = False
) -> Iterator[PartialOutput]:
    """An output that gets its name once the block has ended without an error, and otherwise waits to be gone on with.

    Until then it lies in the folder `PATH.partial`, and the same command resumes it.

    Args:
        path: the output, a text file or a folder of pictures, which does not exist yet.
        settings: what the answers depend on besides the sentences, by names that a user understands.
        sentences: the input; those that are done are read from it.
        is_folder: whether the output is a folder.

    Raises:
        FileExistsError: if there is another thing of that folder's name.
        ValueError: if the output was begun with other settings or other sentences, or another process is writing it;
            in the place of an error of the block, if something is done.
    """
    folder = path.with_name(f"{path.name}.partial")
    lock = FileLock(folder / "lock", timeout=0)
    if folder.exists() and not (folder.is_dir() and ((folder / "lock").exists() or not any(folder.iterdir()))):
        raise FileExistsError(f"{folder} exists already, and is no part of an output; remove it")
    folder.mkdir(exist_ok=True)
    try:
        held = lock.acquire()
    except Timeout as error:
        raise ValueError(f"another process is writing {path}") from error
    with held:
        output = PartialOutput(folder, settings, is_folder)
        output.resume(sentences)
        try:
            yield output
        except BaseException as error:
            if not output.has_answers():
                shutil.rmtree(folder)
                raise
            kept = f"partial results are kept in {folder}; the same command resumes"
            if isinstance(error, ValueError | OSError):
                raise ValueError(f"{error}; {kept}") from error
            print(f"onlstm-hf: {kept}", file=sys.stderr)
            raise
        output.answers.replace(path)
        shutil.rmtree(folder)


class PartialOutput:
    """Partial output: `output`, a text file or a folder of pictures, and `progress.json`.

    `progress.json` says what the output is made with, and up to where it counts. What it has beyond that, because the
    command was killed before it could say so, is removed and made again.

    Attributes:
        answers: the text file or the folder.
        num_sentences: how many sentences are done.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], is_folder: bool):
        self._folder, self._settings, self._is_folder = folder, settings, is_folder
        self.answers, self._progress = folder / "output", folder / "progress.json"
        self.num_sentences, self._num_bytes, self._hash = 0, 0, hashlib.sha256()

    def resume(self, sentences: Iterator[str]) -> None:
        """Finds what is done, removes what is beyond it, and reads the sentences that it answers."""
        if self._progress.exists() and self.answers.exists():
            progress = self._read_progress()
            self._check("another", [name for name in self._settings if progress.get(name) != self._settings[name]])
            for sentence in islice(sentences, progress["sentences"]):
                self._add(sentence)
            self._check("other", ["sentences"] if self._hash.hexdigest() != progress["hash of sentences"] else [])
            self._num_bytes = progress["bytes"]
            self._check_answers()
            print(f"onlstm-hf: continuing after {self.num_sentences} sentences in {self._folder}", file=sys.stderr)
        if not self._is_folder:
            with open(self.answers, "ab") as file:
                file.truncate(self._num_bytes)
            return
        self.answers.mkdir(exist_ok=True)
        done = self._pictures()
        for file in self.answers.iterdir():
            if file.name not in done:
                file.unlink()

    def _read_progress(self) -> dict[str, Any]:
        try:
            progress = json.loads(self._progress.read_text(encoding="utf-8"))
            if missing := {"sentences", "hash of sentences", "bytes"} - progress.keys():
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        except (ValueError, AttributeError) as error:  # of JSON, of UTF-8, or JSON of something else
            raise ValueError(f"{self._progress} is damaged ({error}); remove {self._folder} to begin anew") from error
        return progress

    def _pictures(self) -> set[str]:
        """The names of the pictures of the sentences that are done."""
        return {f"{number}.svg" for number in range(1, self.num_sentences + 1)}

    def _check_answers(self) -> None:
        """Raises a `ValueError` if some of what is done is no longer there."""
        if self._is_folder:
            missing = len(self._pictures() - {file.name for file in self.answers.iterdir()})
            problem = f"lacks {missing} of {self.num_sentences} pictures" if missing else None
        else:
            size = self.answers.stat().st_size
            problem = f"has {size} of {self._num_bytes} bytes" if size < self._num_bytes else None
        if problem is not None:
            raise ValueError(
                f"{self.answers} is damaged: it {problem} that {self._progress} counts; remove {self._folder} to "
                "begin anew"
            )

    def write(self, text: str) -> None:
        """Adds to the text file."""
        with open(self.answers, "ab") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
            self._num_bytes = file.tell()

    def record(self, sentences: Iterable[str]) -> None:
        """Says that the next sentences, these, are done with what was written."""
        for sentence in sentences:
            self._add(sentence)
        progress = {
            "sentences": self.num_sentences,
            "hash of sentences": self._hash.hexdigest(),
            "bytes": self._num_bytes,
        }
        write_json(self._progress, self._settings | progress)

    def has_answers(self) -> bool:
        return any(self.answers.iterdir()) if self._is_folder else self.answers.stat().st_size > 0

    def _add(self, sentence: str) -> None:
        self._hash.update(f"{sentence}\n".encode())
        self.num_sentences += 1

    def _check(self, which: str, differing: list[str]) -> None:
        if differing:
            raise ValueError(
                f"{self._folder} was begun with {which} {', '.join(differing)}; give the same, or remove that folder "
                "to begin anew"
            )
