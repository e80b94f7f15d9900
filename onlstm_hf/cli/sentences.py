"""Input sentences and model of the subcommands `parse` and `score`."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice

from ..text.sentence_splitting import sentence_splitter
from ..utils.files import read_lines, read_text_file
from ..utils.iteration import bounded_windows, progress_bar
from .options import add_model_options, add_splitting_options, splitting_language

# Maximum number of warnings about lines with several sentences.
MAX_WARNINGS = 10
# A command warns if the share of out-of-vocabulary words is larger than this.
MAX_UNKNOWN = 0.1
MAX_CHARACTERS_PER_BATCH = 1 << 20


class Sentence(str):
    """A sentence, with the number of its input line, counted from 1, and its start in that line."""

    line: int
    start: int


def add_sentence_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the sentences, the model and the batch size."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "text",
        nargs="*",
        default=[],
        metavar="TEXT",
        help="a sentence, in quotes; without TEXT and --file, or with -, each line of standard input is a sentence",
    )
    source.add_argument("--file", metavar="FILE", help="UTF-8 text file with one sentence per line")
    add_splitting_options(parser)
    add_model_options(parser, batch_size=64)


def read_sentences(options: argparse.Namespace) -> Iterator[Sentence]:
    """Returns the sentences of the arguments, the file or standard input."""
    language = splitting_language(options)
    if options.text and options.text != ["-"]:
        for name in filter(os.path.isfile, options.text):
            _warn(f"{name} is read as a sentence; --file {name} reads the file")
        lines = read_lines(map(os.fsencode, options.text), "the text")
    elif options.file not in (None, "-"):
        if os.path.isfile(options.file):  # a pipe can be read only once
            any(map(str.strip, read_text_file(options.file)))  # raises errors before a model is loaded
        lines = read_text_file(options.file)
    else:
        if sys.stdin is None:
            raise OSError("standard input is closed; give sentences as arguments, --file FILE, or a pipe")
        if sys.stdin.isatty():
            print("Type one sentence per line; end with Ctrl-D.", file=sys.stderr)
            options.batch_size = 1  # answer each typed line at once
        lines = read_lines(sys.stdin.buffer, "standard input")
    return _split(lines, sentence_splitter(language or "en"), warn_only=language is None)


def _split(lines: Iterable[str], split: Callable[[str], list[tuple[int, int]]], warn_only: bool) -> Iterator[Sentence]:
    """Yields the sentences of lines; with `warn_only` each line is one, and warnings name those that have several."""
    num_warnings = 0
    for number, line in enumerate(lines, start=1):
        places = split(line)
        if warn_only and len(places) > 1 and num_warnings < MAX_WARNINGS:
            num_warnings += 1
            _warn(f"line {number} has {len(places)} sentences, read as one; --split-sentences reads each by itself")
        if warn_only:
            places = [(0, len(line))]
        for start, end in places:
            sentence = Sentence(line[start:end])
            sentence.line, sentence.start = number, start
            yield sentence


def in_batches(sentences: Iterable[Sentence], size: int, are_printed: bool = True) -> Iterator[list[Sentence]]:
    """Yields lists of at most `size` sentences, with a progress bar if the results are not printed on a terminal.

    Raises the error of a line that cannot be read after the sentences before it.
    """
    errors = []

    def until_error() -> Iterator[Sentence]:
        try:
            yield from sentences
        except ValueError as error:
            errors.append(error)

    with progress_bar(unit=" sentences", shown=False if sys.stdout.isatty() and are_printed else None) as bar:
        for batch in bounded_windows(until_error(), size, len, MAX_CHARACTERS_PER_BATCH):
            if not errors or any(map(str.strip, batch)):
                yield batch
            bar.update(len(batch))
    if errors:
        raise errors[0]


class UnknownWords:
    """Counts out-of-vocabulary words and warns if there are many."""

    def __init__(self):
        self.num_words, self.unknown = 0, Counter()

    def add(self, words: list[str], is_unknown: list[bool]) -> None:
        self.num_words += len(words)
        self.unknown.update(compress(words, is_unknown))

    def report(self) -> None:
        """Writes the share of unknown words to standard error if it exceeds `MAX_UNKNOWN`."""
        if self.unknown.total() > MAX_UNKNOWN * self.num_words:
            share = 100 * self.unknown.total() / self.num_words
            examples = ", ".join(islice(self.unknown, 5))
            _warn(f"{share:.1f} % of the words are unknown, and read as <unk>, for instance {examples}")


def _warn(message: str) -> None:
    print(f"onlstm-hf: {message}", file=sys.stderr)


def load_model(options: argparse.Namespace, dtype: str = "float32"):
    """Returns the model of the arguments, or the default model, with weights of this type, and its tokenizer."""
    from ..utils.checkpoints import default_model, load_checkpoint

    return load_checkpoint(options.model or default_model(), trust_remote_code=options.trust_remote_code, dtype=dtype)
