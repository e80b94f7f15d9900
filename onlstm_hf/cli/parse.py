"""`onlstm-hf parse`: trees of sentences, as text or pictures."""

import argparse
import json
import mimetypes
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path

from ..trees.drawing import FIGURE_ENDINGS, save_figure, tree_to_text
from ..trees.induced_tree import InducedTree
from ..utils.files import check_writable, written_file, written_folder
from ..utils.iteration import progress_bar
from .options import add_choice, add_number, add_tree_options
from .sentences import Sentence, UnknownWords, add_sentence_options, in_batches, load_model, read_sentences

BATCHES_AT_A_TIME = 8

HELP = "parse sentences into trees"
DESCRIPTION = """\
Writes one tree per sentence, in input order. Trees keep the words as typed, even if the model reads <unk> for them.
Punctuation is dropped unless --punctuation says otherwise. The formats brackets and jsonl write one line per sentence;
an empty line gives the tree (). Output comes in batches; with --batch-size 1 each line of a pipe is parsed at once.

--output FILE is written atomically. For large texts use `onlstm-hf parse-corpus`, which can be resumed.
"""
EXAMPLES = """\
examples:
  onlstm-hf parse "he will sell his shares" --format tree
  onlstm-hf parse --file sentences.txt --output trees.txt
  zcat corpus.txt.gz | onlstm-hf parse --format jsonl | head
  onlstm-hf parse "he will sell his shares" --format svg --output tree.png
  onlstm-hf parse --file sentences.txt --format svg --output figures

formats:
  brackets  (the (old cat))
  tree      drawn with characters, an empty line after each
  jsonl     {"text": "...", "words": [...], "offsets": [[start, end], ...], "unknown": [true or false, ...],
            "brackets": "...", "spans": [{"text": "...", "start": 0, "end": 11, "word_start": 0, "word_end": 3}, ...],
            "distances": [...], "line": 1, "start": 0}, with the place of the text in the input at the end
  svg       the tree above the distances of every layer: of one sentence on standard output or in the file --output
            (.svg or .png), of several sentences as 1.svg, 2.svg, ... in the new folder --output

rules that turn distances into a tree (--branching-bias):
  right     the papers' rule; it favours right-branching trees, which are typical of English
  none      a rule without branching bias
  ranges    the rule of a PRPN's gates when they are fully open or closed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sentence_options(parser)
    add_choice(parser, "--format", ["brackets", "tree", "jsonl", "svg"], "see below")
    add_tree_options(parser)
    hard = "same as --branching-bias ranges"
    parser.add_argument("--hard", action="store_const", dest="branching_bias", const="ranges", help=hard)
    add_choice(parser, "--units", ["words", "tokens"], "leaves of the trees: words, or the tokenizer's tokens")
    add_number(parser, "--max-length", "read at most N tokens at a time, which saves memory; the trees are the same")
    parser.add_argument("--output", metavar="PATH", help="new file or folder of pictures, instead of standard output")


def run(options: argparse.Namespace) -> None:
    sentences = read_sentences(options)
    path = None if options.output is None else Path(options.output)
    check_writable(path, is_new=True)
    names = ("layer", "branching_bias", "punctuation", "units", "max_length")
    parse_options = {name: getattr(options, name) for name in names}
    if options.format == "svg":
        _draw(options, sentences, path, parse_options)
        return
    model, tokenizer = load_model(options, options.dtype)
    unknown_words = UnknownWords()
    with nullcontext(sys.stdout) if path is None else written_file(path) as file:
        # Sorting the sentences of several batches by length reduces padding.
        size = options.batch_size * (BATCHES_AT_A_TIME if options.batch_size > 1 else 1)
        for batch in in_batches(sentences, size, are_printed=path is None):
            trees = model.parse(batch, tokenizer, progress=False, batch_size=options.batch_size, **parse_options)
            for tree, sentence in zip(trees, batch, strict=True):
                unknown_words.add(tree.words, tree.unknown)
                print(_formatted(tree, sentence, options.format), file=file)
            file.flush()
    unknown_words.report()


def _formatted(tree: InducedTree, sentence: Sentence, tree_format: str) -> str:
    if tree_format == "brackets":
        return tree.to_bracket()
    if tree_format == "tree":
        return tree_to_text(tree, width=shutil.get_terminal_size((120, 24)).columns) + "\n"
    record = tree.to_record(sentence) | {"line": sentence.line, "start": sentence.start}
    return json.dumps(record, ensure_ascii=False)


def _draw(options: argparse.Namespace, sentences: Iterator[Sentence], path: Path | None, parse_options: dict) -> None:
    is_folder = path is not None and path.suffix.lower() not in FIGURE_ENDINGS
    if is_folder and mimetypes.guess_type(path.name)[0]:  # .jpg, .pdf: unlikely to be meant as a folder
        check_writable(path, endings=FIGURE_ENDINGS)
    first_sentences = list(islice(sentences, 2))
    if len(first_sentences) > 1 and not is_folder:
        raise ValueError("one picture shows one sentence; for several name a new folder, such as --output figures")
    model, tokenizer = load_model(options, options.dtype)
    sentences = chain(first_sentences, sentences)
    figures = (model.draw_distances(sentence, tokenizer, **parse_options) for sentence in sentences)
    if is_folder:
        with written_folder(path) as folder:
            for number, figure in enumerate(progress_bar(figures, unit="sentence"), start=1):
                save_figure(figure, folder / f"{number}.svg")
    elif path is None:
        print(next(figures))
    else:
        save_figure(next(figures), path)
