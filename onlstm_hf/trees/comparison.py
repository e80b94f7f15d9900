"""Comparison of one tree with its gold tree: shared and crossing constituents, and F1."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, compress
from typing import Any

from .brackets import unescape_word
from .drawing import compared_trees_to_svg
from .induced_tree import InducedTree, cross
from .treebank import DIGITS, GoldTree, Preprocessing

Span = tuple[int, int]


@dataclass(frozen=True)
class TreeComparison:
    """Comparison of a tree with a gold tree over the same words; `InducedTree.compare` makes one.

    The span of the whole sentence is never counted. Spans are half-open pairs of word positions. Both trees lack the
    punctuation and currency signs that only one of them had.
    """

    tree: InducedTree
    gold: InducedTree

    @cached_property
    def _spans(self) -> list[Span]:
        return self.tree.spans()[1:]

    @cached_property
    def _gold_spans(self) -> list[Span]:
        return self.gold.spans()[1:]

    @cached_property
    def shared(self) -> list[Span]:
        """Constituents of the tree that are gold."""
        return [span for span in self._spans if span in self._gold_spans]

    @cached_property
    def crossing(self) -> list[Span]:
        """Constituents of the tree that cross a gold constituent."""
        return [span for span in self._spans if any(cross(span, gold) for gold in self._gold_spans)]

    @cached_property
    def missed(self) -> list[Span]:
        """Gold constituents that the tree lacks."""
        return [span for span in self._gold_spans if span not in self._spans]

    @property
    def precision(self) -> float:
        """Fraction of the tree's constituents that are gold. For a tree without any: 1 if gold has none, else 0."""
        return len(self.shared) / len(self._spans) if self._spans else float(not self._gold_spans)

    @property
    def recall(self) -> float:
        """Fraction of the gold constituents that the tree has; 1 if there are none."""
        return len(self.shared) / len(self._gold_spans) if self._gold_spans else 1.0

    @property
    def f1(self) -> float:
        """F1 of this sentence, from 0 to 1; `sentence_f1` of `score_parses` averages it over a treebank."""
        total = len(self._spans) + len(self._gold_spans)
        return 2 * len(self.shared) / total if total else 1.0

    def to_svg(self, title: str | None = None) -> str:
        """Draws both trees as SVG, the gold tree above; constituents that are not gold are dashed."""
        return compared_trees_to_svg(self.gold, {"tree": self.tree}, title)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        return f"gold\n{self.gold}\n\ntree\n{self.tree}\n\n{self.summary()}"

    def summary(self) -> str:
        """Returns one line with F1 in per cent and the numbers of constituents."""
        return (
            f"F1 {100 * self.f1:.1f}: {len(self.shared)} of {len(self._spans)} constituents are gold, "
            f"{len(self.crossing)} cross gold ones; {len(self.missed)} of {len(self._gold_spans)} gold ones are missed"
        )


def compare_trees(tree: InducedTree, gold: Any) -> TreeComparison:
    """Compares a tree with a gold tree; for arguments and errors see `InducedTree.compare`."""
    pairs = [(tree, reading) for reading in _readings(gold)]
    pairs += [(_without_signs(tree, reading), _without_signs(reading, tree)) for _, reading in pairs]
    for predicted, reading in pairs:
        words = predicted.words
        if len(words) == len(reading.words) and all(map(_match, words, reading.words)):
            return TreeComparison(predicted, InducedTree.from_spans(words, reading.spans()))
    raise ValueError(_difference(*min(pairs, key=lambda pair: abs(len(pair[0].words) - len(pair[1].words)))))


def _readings(gold: Any) -> list[Any]:
    """Returns all interpretations of `gold` as a tree; the caller chooses the one with the right words."""
    as_typed = Preprocessing(lowercase=False, digits="keep")
    if hasattr(gold, "spans"):
        return [gold]
    if isinstance(gold, str):
        readers = [
            lambda: GoldTree.from_bracket(gold, as_typed),
            lambda: InducedTree.from_bracket(gold, labelled=True),
            lambda: InducedTree.from_bracket(gold, labelled=False),
        ]
    else:
        readers = [lambda: GoldTree.from_nltk(gold, as_typed)] if hasattr(gold, "label") else []
        readers.append(lambda: InducedTree.from_nested(gold))
    readings = []
    for read in readers:
        with suppress(ValueError):
            readings.append(read())
    return readings or [readers[-1]()]  # raises the error of the last interpretation


def _without_signs(tree: Any, other: Any) -> Any:
    """Removes the punctuation and currency signs that the other tree lacks."""
    other_words = set(map(_normalized, other.words))
    words = map(_normalized, tree.words)
    is_kept = [word in other_words or (any(map(str.isalnum, word)) and not word.endswith("$")) for word in words]
    if all(is_kept):
        return tree
    new_index = [0, *accumulate(is_kept)]
    spans = [(new_index[start], new_index[end]) for start, end in tree.spans() if new_index[start] < new_index[end]]
    return InducedTree.from_spans(list(compress(tree.words, is_kept)), spans)


def _difference(tree: InducedTree, gold: Any) -> str:
    if len(tree.words) != len(gold.words):
        problem = f"the tree has {len(tree.words)} words, the gold tree {len(gold.words)}"
    else:
        pairs = enumerate(zip(tree.words, gold.words, strict=True))
        position, (word, other) = next((place, pair) for place, pair in pairs if not _match(*pair))
        problem = f"word {position} is {word!r} in the tree and {other!r} in the gold tree"
    return f"{problem}; parse the words of the gold tree: `model.parse([{list(gold.words)}], tokenizer)`"


def _match(word: str, other: str) -> bool:
    """Returns whether two normalised words are equal, also if one of them has `N` for digits."""
    return _normalized(word) == _normalized(other) or any(
        _normalized(Preprocessing(digits=digits).word(one)) == _normalized(two)
        for digits in DIGITS
        for one, two in ((word, other), (other, word))
    )


def _normalized(word: str) -> str:
    """Case-folds a word and resolves the escapes of the Penn Treebank."""
    return unescape_word(word.upper() if word.startswith("-") else word).casefold()
