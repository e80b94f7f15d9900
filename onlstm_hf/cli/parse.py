"""`onlstm-hf parse`: sentences to trees, as text or pictures."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.files import written_folder
from ..utils.programs import positive_integer
from .output import check_is_new, text_output
from .sentences import add_sentence_options, load_model, read_sentences, sentence_batches

if TYPE_CHECKING:
    from ..trees.induced_tree import InducedTree

DESCRIPTION = """\
Writes the tree that the model finds in each sentence, in the order of the sentences. A tree has the words as they were
typed, also where the model does not know a word and reads <unk> in its place. The formats brackets and jsonl write one
line a sentence; an empty line has the tree without words, ().
"""
EXAMPLES = """\
examples:
  onlstm-hf parse "the old cat sat on the mat" --format tree
  onlstm-hf parse --file sentences.txt --output trees.txt
  zcat corpus.txt.gz | onlstm-hf parse --format jsonl | head
  onlstm-hf parse "the cat sat on the mat" --format svg --output tree.png
  onlstm-hf parse --file sentences.txt --format svg --output figures

formats:
  brackets  (the (old cat))
  tree      drawn with characters, an empty line after each
  jsonl     {"words": [...], "bracket": "...", "spans": [[start, end], ...], "distances": [...]}
  svg       a picture: the tree above the distances that every layer gives the words. The picture of one sentence goes
            to standard output, or to the file --output, which ends in .svg or .png. Those of several sentences go to
            the new folder --output, as 1.svg, 2.svg, ...

rules that turn distances into a tree (--branching-bias):
  right     the papers' rule; it favours trees that branch to the right, as those of English do
  none      a rule that favours neither side
  ranges    the rule that a PRPN's gates follow when they are fully open or closed
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds `parse` to the subcommands."""
    parser = commands.add_parser("parse", help="sentences to trees", description=DESCRIPTION, epilog=EXAMPLES)
    add_sentence_options(parser)
    parser.add_argument(
        "--format", choices=[*TREE_FORMATS, "svg"], default="brackets", help="see below (default: %(default)s)"
    )
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="layer whose distances make the trees, counted from 0 (default: parse_layer in the model's config.json)",
    )
    parser.add_argument(
        "--branching-bias",
        choices=["right", "none", "ranges"],
        default="right",
        help="see below (default: %(default)s)",
    )
    parser.add_argument(
        "--hard",
        action="store_const",
        dest="branching_bias",
        const="ranges",
        help="the same as --branching-bias ranges",
    )
    parser.add_argument(
        "--units",
        choices=["words", "tokens"],
        default="words",
        help="whether the leaves of the trees are words or the tokenizer's tokens, which can be parts of words "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--max-length",
        type=positive_integer,
        metavar="N",
        help="run at most N tokens of a sentence at a time, to save memory on very long ones; the trees are the same",
    )
    parser.add_argument(
        "--output", metavar="PATH", help="write a new file (or folder of pictures) instead of standard output"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Writes the trees."""
    sentences = read_sentences(options)
    if options.format == "svg":
        _draw(options, sentences)
        return
    with text_output(options.output) as output:
        model, tokenizer = load_model(options)
        for batch in sentence_batches(options, sentences):
            for tree in model.parse(batch, tokenizer, progress=False, **_parse_options(options)):
                print(TREE_FORMATS[options.format](tree), file=output)
            output.flush()


def _drawing(tree: InducedTree) -> str:
    from ..trees.drawing import tree_to_text

    return tree_to_text(tree, width=shutil.get_terminal_size((120, 24)).columns) + "\n"


def _json_line(tree: InducedTree) -> str:
    fields = {
        "words": tree.words,
        "bracket": tree.to_bracket(),
        "spans": tree.spans(),
        "distances": tree.distances,
    }
    return json.dumps(fields, ensure_ascii=False)


TREE_FORMATS: dict[str, Callable[[InducedTree], str]] = {
    "brackets": lambda tree: tree.to_bracket(),
    "tree": _drawing,
    "jsonl": _json_line,
}


def _draw(options: argparse.Namespace, sentences: Iterator[str]) -> None:
    from ..trees.drawing import save_figure

    output = None if options.output is None else Path(options.output)
    if output is not None:
        check_is_new(output)
    if output is not None and output.suffix.lower() not in (".svg", ".png"):
        with written_folder(output) as folder:
            for number, figure in enumerate(_figures(options, sentences), start=1):
                save_figure(figure, folder / f"{number}.svg")
        return
    only = list(islice(sentences, 2))
    if len(only) > 1:
        raise ValueError("one picture shows one sentence; for several name a new folder, such as --output figures")
    figure = next(_figures(options, iter(only)))
    if output is None:
        print(figure)
    else:
        save_figure(figure, output)


def _figures(options: argparse.Namespace, sentences: Iterator[str]) -> Iterator[str]:
    """An SVG document for each sentence: its tree above the distances of every layer."""
    model, tokenizer = load_model(options)
    for sentence in sentences:
        yield model.draw_distances(sentence, tokenizer, **_parse_options(options))


def _parse_options(options: argparse.Namespace) -> dict:
    names = ("layer", "branching_bias", "units", "batch_size", "max_length")
    return {name: getattr(options, name) for name in names}
