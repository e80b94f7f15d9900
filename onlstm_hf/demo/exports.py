"""Results as other programs read them: the numbers as tables, trees in square brackets and in LaTeX."""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..trees.induced_tree import InducedTree
from .sentence_analysis import PairComparison, SentenceAnalysis

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
Cell = str | float | bool | None


class NumberTable(NamedTuple):
    """A table with a row for each word.

    Attributes:
        columns: their names.
        rows: a cell for each column; `None` where there is nothing.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def texts(self) -> list[list[str]]:
        """The cells as they are shown."""
        return [[_shown(cell) for cell in row] for row in self.rows]

    def to_tsv(self) -> str:
        return "".join("\t".join(row) + "\n" for row in [list(self.columns), *self.texts()])

    def to_json(self, **about: str | None) -> str:
        """The table as records, with what is said about it."""
        records = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return json.dumps({**about, "words": records}, ensure_ascii=False, indent=1) + "\n"


def sentence_table(analysis: SentenceAnalysis) -> NumberTable:
    """The words of a sentence with the distances of every layer and the surprisal."""
    reading = analysis.reading
    distances = [tree.distances for tree in analysis.trees_by_layer.values()]
    names = [f"distance, {name.partition(',')[0]}" for name in analysis.trees_by_layer]
    columns = ("word", *names, "surprisal (bits)", "unknown")
    return NumberTable(
        columns, list(zip(reading.words, *distances, reading.surprisals, reading.is_unknown, strict=True))
    )


def pair_table(pair: PairComparison) -> NumberTable:
    """The words of a minimal pair that stand in the same place, with their surprisals and the difference."""
    sentences = ("grammatical", "surprisal (bits)", "ungrammatical", "surprisal of this (bits)")
    columns = (*sentences, "difference (bits)")
    rows = [
        (*(first[:2] if first else (None, None)), *(second[:2] if second else (None, None)), column.difference)
        for column in pair.columns()
        for first, second in [column]
    ]
    return NumberTable(columns, rows)


def to_square_brackets(tree: InducedTree) -> str:
    """`[the [old cat]]`, which the page reads as a gold tree, too."""
    words = [word.replace("[", "-LSB-").replace("]", "-RSB-") for word in tree.words]
    return _with_brackets(tree, words, "[", "]")


def to_qtree(tree: InducedTree) -> str:
    r"""`\Tree [.{} {the} [.{} {old} {cat} ] ]`, for `qtree` and `tikz-qtree`."""
    return rf"\Tree {_with_brackets(tree, _latex_words(tree), '[.{} ', ' ]')}"


def to_forest(tree: InducedTree) -> str:
    r"""A `forest` environment, which needs `\usepackage[linguistics]{forest}`."""
    nodes = _with_brackets(tree, [f"[{word}]" for word in _latex_words(tree)], "[", "]")
    return f"\\begin{{forest}} nice empty nodes\n{nodes}\n\\end{{forest}}"


def _with_brackets(tree: InducedTree, words: list[str], opening: str, closing: str) -> str:
    text = " ".join(
        opening * count + word + closing * -count for word, count in zip(words, tree.bracket_counts, strict=True)
    )
    return text if len(words) > 1 else f"{opening}{text}{closing}"


def _latex_words(tree: InducedTree) -> list[str]:
    return ["{" + re.sub(r"[\\~^&%$#_{}]", lambda found: _LATEX[found[0]], word) + "}" for word in tree.words]


def _shown(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "" if cell is None else " ".join(cell.split())
