"""Punctuation as a cue: F1 of trees whose distances are raised after punctuation marks.

    python eval/evaluate_punctuation.py MODEL TREES.jsonl.xz --treebank wsj.mrg --output results.json
    python eval/evaluate_punctuation.py MODEL --treebank spanish.mrg --strengths 0 1 2 3
    python eval/evaluate_punctuation.py MODEL --treebank gum/

Models are checkpoints or tree files of training runs. They read words only; tags of the treebank's leaves tell where
marks are. A mark raises the distance of the next word by the strength times the standard deviation of the sentence's
distances (`raise_at_marks`). Strength 0 is the papers' protocol. F1 is averaged over files. The last row is right
branching, which marks improve as well.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.tables import format_table
from eval.report.tasks import PUNCTUATION
from eval.task import add_model_options, load_model, run_task, task_parser
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.brackets import BracketNode
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.punctuation import CUE_STRENGTH, raise_at_marks
from onlstm_hf.trees.tree_files import read_tree_file
from onlstm_hf.trees.treebank import (
    CURRENCY_TAGS,
    EMPTY_ELEMENT_TAGS,
    GoldTree,
    Preprocessing,
    preprocessing_of,
    read_bracket_file,
    read_treebank,
    treebank_files,
)
from onlstm_hf.utils.iteration import progress_bar

BASELINE = "right branching"
RULES = {"right": "papers' rule", "none": "unbiased"}
PROTOCOL = "sentence F1 as in the papers; with a cue it is not the papers' protocol, which has no punctuation"

# Gold trees of a file, and for each word of each tree whether it directly follows marks.
MarkedTrees = tuple[list[GoldTree], list[list[bool]]]


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="checkpoints or tree files")
    parser.add_argument(
        "--treebank", nargs="+", required=True, metavar="PATH", help="files or folders of trees with punctuation"
    )
    parser.add_argument(
        "--strengths",
        nargs="+",
        type=float,
        default=[0.0, CUE_STRENGTH],
        metavar="K",
        help="standard deviations that a mark adds (default: %(default)s)",
    )
    add_model_options(parser)
    return parser


def evaluate_punctuation(options: argparse.Namespace) -> dict:
    """Scores the trees of every model, rule and strength, prints the table and returns the results."""
    rows, treebank = [], " ".join(options.treebank)
    for name in options.models:
        if name.endswith(".xz"):
            stored = read_tree_file(name)
            if stored.branching_bias is not None:
                raise ValueError(f"{name} has trees of a grammar or an average, built with one rule only")
            files = read_with_marks(options.treebank, stored.model.get("treebank_preprocessing"))
            if stored.sentences != [tree.words for gold, _ in files for tree in gold]:
                raise ValueError(f"{name} has other sentences than {treebank}, or other words in them")
            distances = stored.by_layer[stored.parse_layer]
        else:
            model, tokenizer = load_model(name, options)
            files = read_with_marks(options.treebank, model.config.treebank_preprocessing)
            trees = model.parse([list(tree.words) for gold, _ in files for tree in gold], tokenizer)
            distances = [tree.distances for tree in trees]
        rows.append(score(name, files, distances, options.strengths))
    share = mean(any(row[1:]) for _, marks in files for row in marks)
    falling = [range(len(tree.words), 0, -1) for gold, _ in files for tree in gold]
    rows.append(score(BASELINE, files, falling, options.strengths))

    header = ["model", "rule", *(f"k = {strength:g}" if strength else "no marks" for strength in options.strengths)]
    lines = [
        [row["model"], RULES[rule], *(f"{100 * row['sentence_f1'][rule][f'{k:g}']:.1f}" for k in options.strengths)]
        for row in rows
        for rule in RULES
    ]
    print(f"{treebank}: {100 * share:.0f} % of the sentences have marks between words; {PROTOCOL}\n")
    print(format_table(header, lines))
    return {
        "task": PUNCTUATION,
        "treebank": treebank,
        "files": len(files),
        "sentences_with_marks": share,
        "strengths": options.strengths,
        "protocol": PROTOCOL,
        "models": rows,
    }


def score(
    name: str, files: Sequence[MarkedTrees], distances: Sequence[Sequence[float]], strengths: Sequence[float]
) -> dict:
    """Returns the entry of a model in the results: F1 by rule and strength, averaged over files."""
    scores: dict[str, dict[str, float]] = {rule: {} for rule in RULES}
    cells = list(product(RULES, strengths))
    for rule, strength in progress_bar(cells, unit="table cell"):
        rows, of_files = iter(distances), []
        for gold, marks in files:
            trees = [
                tree_from_distances(raise_at_marks(next(rows), after_mark, strength), tree.words, rule)
                for after_mark, tree in zip(marks, gold, strict=True)
            ]
            of_files.append(score_parses(trees, gold, num_resamples=0).sentence_f1)
        scores[rule][f"{strength:g}"] = mean(of_files)
    return {"model": name, "sentence_f1": scores}


def read_with_marks(paths: Sequence[str], stored: dict | None) -> list[MarkedTrees]:
    """Reads the gold trees with words of each file, and for each word whether it directly follows marks.

    Marks are all dropped leaves except empty elements and currency signs. `stored` is the stored preprocessing, see
    `preprocessing_of`.
    """
    preprocessing = preprocessing_of(None, stored)
    files = []
    for path in treebank_files(paths):
        trees = read_treebank(path, preprocessing)
        marks = [_after_marks(root, preprocessing) for root in read_bracket_file(path)]
        if [len(tree.words) for tree in trees] != list(map(len, marks)):
            raise ValueError(f"{path}: the words and marks of a sentence cannot be told apart")
        files.append(([tree for tree in trees if tree.words], [row for row in marks if row]))
    return files


def _after_marks(root: BracketNode, preprocessing: Preprocessing) -> list[bool]:
    flags, is_marked = [], False
    for tag in _tags_of_leaves(root):
        if tag not in preprocessing.dropped_tags:
            flags.append(is_marked)
            is_marked = False
        elif tag not in EMPTY_ELEMENT_TAGS | CURRENCY_TAGS:
            is_marked = True
    return flags


def _tags_of_leaves(node: BracketNode | str) -> Iterator[str | None]:
    """Yields the tag of each leaf in order; `None` for a word without a tag."""
    if isinstance(node, str):
        yield None
    elif len(node.children) == 1 and isinstance(node.children[0], str):
        yield node.label
    else:
        for child in node.children:
            yield from _tags_of_leaves(child)


main = partial(run_task, "eval/evaluate_punctuation.py", build_parser, evaluate_punctuation)

if __name__ == "__main__":
    sys.exit(main())
