"""What the subcommands that read sentences share: where the sentences come from, and the model that reads them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..utils.files import check_is_text_file, read_lines
from ..utils.programs import add_code_option, positive_integer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BYTES_AT_A_TIME = 1 << 20


class ArrivingLines:
    """The lines of a stream as they come, at most `max_bytes` long, and whether the next one has come already.

    Args:
        open_stream: opens the stream, in binary mode and with `read1`.
        source: the name of the text in error messages.
        max_bytes: the length of the longest line that is read; there is never more in memory than that and what is
            read at a time.

    Attributes:
        pauses: whether there is no further line yet after the one that was read last.
    """

    def __init__(self, open_stream: Callable[[], AbstractContextManager[BinaryIO]], source: str, max_bytes: int):
        self._open_stream, self._source, self._max_bytes = open_stream, source, max_bytes
        self.pauses = False

    def __iter__(self) -> Iterator[bytes]:
        """Raises a `ValueError` in the place of a line that is too long."""
        number, unfinished = 0, bytearray()
        with self._open_stream() as stream:
            while chunk := stream.read1(BYTES_AT_A_TIME):
                unfinished += chunk
                if b"\n" in chunk:
                    *lines, unfinished = unfinished.split(b"\n")
                    for position, line in enumerate(lines, start=1):
                        number += 1
                        self._check_length(line, number)
                        self.pauses = position == len(lines)
                        yield bytes(line)
                self._check_length(unfinished, number + 1)
        if unfinished:
            yield bytes(unfinished)

    def _check_length(self, line: bytes, number: int) -> None:
        if len(line) > self._max_bytes:
            raise ValueError(
                f"line {number} of {self._source} has more than {self._max_bytes} bytes; put every sentence on a line "
                "of its own, or allow longer ones with --max-line"
            )


class Sentences:
    """The sentences of a command's input, an iterator.

    Args:
        lines: their bytes.
        source: the name of the text in error messages.
        pauses: tells whether there is no further line yet after the one that was read last.
    """

    def __init__(self, lines: Iterable[bytes], source: str, pauses: Callable[[], bool] = lambda: False):
        self._texts = read_lines(lines, source)
        self.pauses = pauses

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._texts)

    def batches(self, size: int, wait: bool = False) -> Iterator[list[str]]:
        """Lists of `size` sentences: shorter ones where the input pauses or ends, and before a line with an error.

        Args:
            size: the longest list.
            wait: fill the lists also where the input pauses, so that it does not depend on time what is in them.
        """
        batch: list[str] = []
        try:
            for sentence in self:
                batch.append(sentence)
                if len(batch) == size or (not wait and self.pauses()):
                    yield batch
                    batch = []
        except ValueError:  # of the next line
            if any(map(str.strip, batch)):
                yield batch
            raise
        if batch:
            yield batch


def add_sentence_options(parser: argparse.ArgumentParser) -> None:
    """Adds the sentences, the model, and how many sentences it reads at a time."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "text",
        nargs="*",
        default=[],
        metavar="TEXT",
        help="a sentence, in quotes; sentences are read from standard input, one a line, if there is neither TEXT nor "
        "--file, or if TEXT is -",
    )
    source.add_argument(
        "--file", metavar="FILE", help="read the sentences from a UTF-8 text file, one a line (-: standard input)"
    )
    parser.add_argument(
        "--model",
        metavar="PATH_OR_NAME",
        help="checkpoint folder, or name on the Hub (default: see `onlstm-hf --help`)",
    )
    add_code_option(parser)
    parser.add_argument(
        "--batch-size",
        type=positive_integer,
        default=64,
        metavar="N",
        help="run N sentences at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--max-line",
        type=positive_integer,
        default=1_000_000,
        metavar="BYTES",
        help="refuse a line of more bytes than that, which no sentence has: memory grows with the longest line "
        "(default: %(default)s)",
    )


def add_dtype_option(parser: argparse._ActionsContainer, auto: str) -> None:
    """Adds the precision of the weights; `auto` says what that choice is, for the help."""
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help=f"precision of the weights (default: auto, which is {auto})",
    )


def read_sentences(options: argparse.Namespace) -> Sentences:
    """The sentences of the arguments, the file or standard input.

    A file is read up to its first word before this returns, so that one without any shows before a model is loaded.
    """
    if _reads_standard_input(options):
        if sys.stdin is None:
            raise ValueError("standard input is closed; give sentences as TEXT, or name a file with --file")
        if sys.stdin.isatty():
            print("Type a sentence a line; end with Ctrl-D.", file=sys.stderr)
        return _arriving_sentences(lambda: nullcontext(sys.stdin.buffer), "standard input", options.max_line)
    if options.text:
        return Sentences((os.fsencode(text) for text in options.text), "the text")
    check_is_text_file(options.file)
    file = partial(open, options.file, "rb")
    if Path(options.file).is_file():  # and not, for instance, a named pipe, which can be read only once
        any(map(str.strip, _arriving_sentences(file, options.file, options.max_line)))
    return _arriving_sentences(file, options.file, options.max_line)


def _arriving_sentences(
    open_stream: Callable[[], AbstractContextManager[BinaryIO]], source: str, max_bytes: int
) -> Sentences:
    lines = ArrivingLines(open_stream, source, max_bytes)
    return Sentences(lines, source, lambda: lines.pauses)


def load_model(options: argparse.Namespace, dtype: str = "float32") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of the arguments, or the default one, with weights of this type, and its tokenizer."""
    import torch

    from ..utils.checkpoints import default_model, load_checkpoint

    return load_checkpoint(
        options.model or default_model(),
        trust_remote_code=options.trust_remote_code,
        dtype=getattr(torch, dtype),
    )


def _reads_standard_input(options: argparse.Namespace) -> bool:
    return options.file == "-" or (options.file is None and options.text in ([], ["-"]))
