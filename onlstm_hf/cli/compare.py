"""`onlstm-hf compare`: comparison of trees with gold trees, as a table, a drawing or a picture."""

import argparse
import json
from dataclasses import replace

from ..trees.comparison import TreeComparison
from ..trees.drawing import FIGURE_ENDINGS, save_figure
from ..trees.induced_tree import InducedTree
from ..trees.treebank import PRESETS, GoldTree, read_treebank
from ..utils.files import check_writable, read_text_file
from ..utils.iteration import progress_bar
from .options import add_choice, add_number

HELP = "compare trees with gold trees"
DESCRIPTION = """\
Compares trees with the gold trees of the same sentences: shared, crossing and missed constituents, and F1. The span of
the whole sentence is never counted.
"""
EXAMPLES = """\
examples:
  onlstm-hf parse --file sentences.txt --output trees.txt
  onlstm-hf compare trees.txt gold.mrg
  onlstm-hf compare trees.txt gold.mrg --format tree
  onlstm-hf compare trees.txt gold.mrg --figure comparison.svg --sentence 3

TREES is a file with one tree per line, as `onlstm-hf parse` writes it (brackets or jsonl). GOLD is a treebank, a file
or a folder of .mrg files; `--preset` selects which of its leaves are words. The n-th tree is compared with the n-th
gold tree. Their words must agree, except for case. Punctuation and currency signs that only one of two trees has are
ignored.

presets: the tags of the Penn Treebank (ptb), the Chinese Treebank (ctb) or Universal Dependencies (universal);
labelled trees whose leaves are all words (plain); a tree without labels in each line (unlabelled)

formats:
  table   a line per sentence, then the scores, with those of left-branching, right-branching and balanced trees
  tree    both trees of every sentence, drawn with characters, and their shared constituents
  jsonl   {"words": [...], "brackets": "...", "gold": "...", "f1": 0.67, "shared": [[start, end], ...],
          "crossing": [...], "missed": [...]}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trees", metavar="TREES", help="file with one tree per line")
    parser.add_argument("gold", metavar="GOLD", help="gold trees: a file, or a folder of .mrg files")
    add_choice(parser, "--format", ["table", "tree", "jsonl"], "see below")
    add_choice(parser, "--preset", ["ptb", "ctb", "universal", "plain", "unlabelled"], "kind of gold trees, see below")
    parser.add_argument("--figure", metavar="FILE", help="also write a picture of one sentence: .svg or .png")
    add_number(parser, "--sentence", "number of the sentence for --figure, counted from 1", default=1)


def run(options: argparse.Namespace) -> None:
    check_writable(options.figure, endings=FIGURE_ENDINGS)
    trees = _read_trees(options.trees)
    if options.preset == "unlabelled":
        gold = _read_trees(options.gold)
    else:
        gold = read_treebank(options.gold, replace(PRESETS[options.preset], lowercase=False, digits="keep"))
    if len(trees) != len(gold):
        raise ValueError(f"{options.trees} has {len(trees)} trees, but {options.gold} has {len(gold)}")
    if options.sentence > len(trees):
        raise ValueError(f"--sentence {options.sentence}: there are {len(trees)} sentences")
    comparisons = []
    for tree, gold_tree in progress_bar(zip(trees, gold, strict=True), total=len(gold), unit="sentence"):
        try:
            comparisons.append(tree.compare(gold_tree))
        except ValueError as error:
            raise ValueError(f"sentence {len(comparisons) + 1}: {error}") from error
    if options.format == "table":
        print(f"{'sentence':>8} {'F1':>6} {'shared':>7} {'crossing':>9} {'missed':>7}  words")
    for number, item in enumerate(comparisons, start=1):
        if options.format == "table":
            counts = f"{len(item.shared):7} {len(item.crossing):9} {len(item.missed):7}"
            print(f"{number:8} {100 * item.f1:6.1f} {counts}  {' '.join(item.tree.words)}")
        elif options.format == "tree":
            print(f"sentence {number}\n\n{item}\n")
        else:
            fields = {"words": item.tree.words, "brackets": item.tree.to_bracket(), "gold": item.gold.to_bracket()}
            fields |= {name: getattr(item, name) for name in ("f1", "shared", "crossing", "missed")}
            print(json.dumps(fields, ensure_ascii=False))
    if options.format == "table":
        print()
    if options.format != "jsonl":
        _print_scores(comparisons)
    if options.figure:
        save_figure(comparisons[options.sentence - 1].to_svg(), options.figure)


def _print_scores(comparisons: list[TreeComparison]) -> None:
    from ..scoring.parsing_scores import score_parses
    from ..trees.baselines import baseline_trees

    gold = [GoldTree(item.gold.words, tuple(("X", *span) for span in item.gold.spans())) for item in comparisons]
    rows = {"these trees": [item.tree for item in comparisons]}
    rows |= {name: baseline_trees(name, gold) for name in ("left branching", "right branching", "balanced")}
    print(f"{'sentence F1':>16} {'corpus F1':>9}")
    for name, trees in rows.items():
        scores = score_parses(trees, gold, num_resamples=0)
        print(f"{100 * scores.sentence_f1:16.1f} {100 * scores.corpus_f1:9.1f}  {name}")


def _read_trees(path: str) -> list[InducedTree]:
    trees = []
    for number, line in enumerate(read_text_file(path), start=1):
        try:
            if line.strip():
                brackets = json.loads(line)["brackets"] if line.lstrip().startswith("{") else line
                trees.append(InducedTree.from_bracket(brackets, labelled=False))
        except (ValueError, KeyError) as error:
            expected = "the brackets or jsonl of `onlstm-hf parse`"
            raise ValueError(f"line {number} of {path} is no tree ({error}); expected {expected}") from error
    return trees
