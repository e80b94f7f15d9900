"""Input sentences and model of the subcommands `parse` and `score`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.sentence_splitting import sentence_splitter
from ..utils.files import binary_lines, check_is_text_file, read_lines, read_text_file
from .options import add_model_options, add_splitting_options, splitting_language

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Maximum number of warnings about lines with several sentences.
MAX_WARNINGS = 10
# A command warns if the share of out-of-vocabulary words is larger than this.
MAX_UNKNOWN = 0.1


class Sentence(str):
    """A sentence, with the number of its input line, counted from 1, and its start in that line."""

    line: int
    start: int


def split_into_sentences(
    lines: Iterable[bytes], source: str, split: Callable[[str], list[tuple[int, int]]] | None = None
) -> Iterator[Sentence]:
    """Yields the sentences of a command's input, which messages call `source`.

    `split` returns the start and end of each sentence in a line; by default each line is one sentence.
    """
    find, num_warnings = split or sentence_splitter(), 0
    for number, line in enumerate(read_lines(lines, source), start=1):
        places = find(line)
        if split is None:
            if len(places) > 1 and num_warnings < MAX_WARNINGS:
                num_warnings += 1
                more = "; further such lines are not named" if num_warnings == MAX_WARNINGS else ""
                print(
                    f"onlstm-hf: line {number} has {len(places)} sentences and is read as one; --split-sentences "
                    f"reads each by itself{more}",
                    file=sys.stderr,
                )
            places = [(0, len(line))]
        for start, end in places:
            sentence = Sentence(line[start:end])
            sentence.line, sentence.start = number, start
            yield sentence


def in_batches(sentences: Iterable[Sentence], size: int, are_printed: bool = True) -> Iterator[list[Sentence]]:
    """Yields lists of `size` sentences; the last one, and one before a line with an error, may be shorter.

    Shows a progress bar after two seconds, except on a terminal that shows the results (`are_printed`).
    """
    from ..utils.iteration import progress_bar

    batch: list[Sentence] = []
    with progress_bar(unit=" sentences", shown=False if sys.stdout.isatty() and are_printed else None) as bar:
        try:
            for sentence in sentences:
                batch.append(sentence)
                if len(batch) == size:
                    yield batch
                    bar.update(size)
                    batch = []
        except ValueError:  # the next line cannot be read
            if any(map(str.strip, batch)):
                yield batch
            raise
        if batch:
            yield batch


def add_sentence_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the sentences, the model and the batch size."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "text",
        nargs="*",
        default=[],
        metavar="TEXT",
        help="a sentence, in quotes; without TEXT and --file, or with TEXT -, sentences are read from standard input, "
        "one per line",
    )
    source.add_argument(
        "--file", metavar="FILE", help="UTF-8 text file with one sentence per line (-: standard input)"
    )
    add_splitting_options(parser, "lines", "line")
    add_model_options(parser, batch_size=64)


def read_sentences(options: argparse.Namespace) -> Iterator[Sentence]:
    """Returns the sentences of the arguments, the file or standard input.

    Reads a file up to its first word, so that an empty file raises an error before a model is loaded.
    """
    language = splitting_language(options)
    split = None if language is None else sentence_splitter(language)
    if options.text and options.text != ["-"]:
        for name in filter(os.path.isfile, options.text):
            print(f"onlstm-hf: {name} is read as a sentence; --file {name} reads the file", file=sys.stderr)
        return split_into_sentences(map(os.fsencode, options.text), "the text", split)
    if options.file in (None, "-"):
        if sys.stdin is None:
            raise ValueError("standard input is closed; give sentences as TEXT, or name a file with --file")
        if sys.stdin.isatty():
            print("Type one sentence per line; end with Ctrl-D.", file=sys.stderr)
            options.batch_size = 1  # answer each typed line at once
        return split_into_sentences(sys.stdin.buffer, "standard input", split)
    check_is_text_file(options.file)
    if Path(options.file).is_file():  # not a named pipe, which can be read only once
        any(map(str.strip, read_text_file(options.file)))
    return split_into_sentences(binary_lines(options.file), options.file, split)


class UnknownWords:
    """Counts out-of-vocabulary words and warns if there are many."""

    def __init__(self):
        self._num_words = self._num_unknown = 0
        self._examples: dict[str, None] = {}

    def add(self, words: Iterable[str], unknown: Iterable[bool]) -> None:
        """Counts the words of a sentence; `unknown` tells for each word whether it is out of vocabulary."""
        for word, is_unknown in zip(words, unknown, strict=True):
            self._num_words += 1
            self._num_unknown += is_unknown
            if is_unknown and len(self._examples) < 5:
                self._examples[word] = None

    def report(self) -> None:
        """Writes the share of unknown words to standard error if it exceeds `MAX_UNKNOWN`."""
        if self._num_unknown > MAX_UNKNOWN * self._num_words:
            share = 100 * self._num_unknown / self._num_words
            print(
                f"onlstm-hf: {share:.1f} % of the words are unknown to the model, which reads <unk> instead, for "
                f"instance {', '.join(self._examples)}",
                file=sys.stderr,
            )


def load_model(options: argparse.Namespace, dtype: str = "float32") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads the model of the arguments, or the default model, with weights of this type, and its tokenizer."""
    import torch

    from ..utils.checkpoints import default_model, load_checkpoint

    return load_checkpoint(
        options.model or default_model(),
        trust_remote_code=options.trust_remote_code,
        dtype=getattr(torch, dtype),
    )
