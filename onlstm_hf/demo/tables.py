"""The numbers of a result as a table, to read, to copy and to download."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from .sentence_analysis import PairComparison, SentenceAnalysis

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
    columns = ("grammatical", "bits", "ungrammatical", "bits of this", "difference (bits)")
    rows = [
        (*(first[:2] if first else (None, None)), *(second[:2] if second else (None, None)), column.difference)
        for column in pair.columns()
        for first, second in [column]
    ]
    return NumberTable(columns, rows)


def _shown(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "" if cell is None else " ".join(cell.split())
