"""What the subcommands that read sentences share: where the sentences come from, and the model that reads them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.files import read_lines, read_text_file
from ..utils.programs import add_code_option, positive_integer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
        help="read, run and write N sentences at a time (default: %(default)s)",
    )


def read_sentences(options: argparse.Namespace) -> Iterator[str]:
    """The sentences of the arguments, the file or standard input.

    A file is read through once before this returns, so that an error in it shows before a model is loaded.
    """
    if _reads_standard_input(options):
        if sys.stdin.isatty():
            print("Type a sentence a line; end with Ctrl-D.", file=sys.stderr)
        return read_lines(sys.stdin.buffer, "standard input")
    if options.text:
        return read_lines((os.fsencode(text) for text in options.text), "the text")
    if Path(options.file).is_file():  # and not, for instance, a named pipe, which can be read only once
        for _ in read_text_file(options.file):
            pass
    return read_text_file(options.file)


def sentence_batches(options: argparse.Namespace, sentences: Iterator[str]) -> Iterator[list[str]]:
    """Lists of `--batch-size` sentences; of one, where somebody types them and waits for each answer."""
    is_typed = _reads_standard_input(options) and sys.stdin.isatty()
    size = 1 if is_typed else options.batch_size
    while batch := list(islice(sentences, size)):
        yield batch


def load_model(options: argparse.Namespace) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of the arguments, or the default one, and its tokenizer."""
    from ..utils.checkpoints import default_model, load_checkpoint

    return load_checkpoint(options.model or default_model(), trust_remote_code=options.trust_remote_code)


def _reads_standard_input(options: argparse.Namespace) -> bool:
    return options.file == "-" or (options.file is None and options.text in ([], ["-"]))
