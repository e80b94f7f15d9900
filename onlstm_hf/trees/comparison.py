"""One tree beside the gold tree of its sentence: the constituents that they share, those that cross, and F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .brackets import unescape_word
from .drawing import compared_trees_to_svg
from .induced_tree import InducedTree

Span = tuple[int, int]


@dataclass(frozen=True)
class TreeComparison:
    """A tree beside the gold tree of the same words; make one with `InducedTree.compare`.

    The whole sentence, a constituent of every tree, counts nowhere. Spans are half-open pairs of word positions.

    Attributes:
        tree: the tree.
        gold: the gold tree, over the words of `tree`.
    """

    tree: InducedTree
    gold: InducedTree

    @cached_property
    def shared(self) -> list[Span]:
        """The constituents of the tree that are gold."""
        gold = set(_inner_spans(self.gold))
        return [span for span in _inner_spans(self.tree) if span in gold]

    @cached_property
    def crossing(self) -> list[Span]:
        """The constituents of the tree that cross a gold one: no tree can have both."""
        gold = _inner_spans(self.gold)
        return [span for span in _inner_spans(self.tree) if any(_cross(span, other) for other in gold)]

    @cached_property
    def missed(self) -> list[Span]:
        """The gold constituents that the tree does not have."""
        shared = set(self.shared)
        return [span for span in _inner_spans(self.gold) if span not in shared]

    @property
    def precision(self) -> float:
        """The share of the tree's constituents that are gold; without any, 1 if there are no gold ones, else 0."""
        return _share(len(self.shared), len(_inner_spans(self.tree)), if_none=not _inner_spans(self.gold))

    @property
    def recall(self) -> float:
        """The share of the gold constituents that the tree has; 1 if there are none."""
        return _share(len(self.shared), len(_inner_spans(self.gold)), if_none=True)

    @property
    def f1(self) -> float:
        """F1 of this sentence, from 0 to 1: `score_parses` averages these over a treebank (`sentence_f1`)."""
        return _share(2 * len(self.shared), len(_inner_spans(self.tree)) + len(_inner_spans(self.gold)), if_none=True)

    def to_svg(self, title: str | None = None) -> str:
        """Draws the gold tree and below it the other one, whose constituents that are not gold are dashed (SVG)."""
        return compared_trees_to_svg(self.gold, {"tree": self.tree}, title)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        return f"gold\n{self.gold}\n\ntree\n{self.tree}\n\n{self.summary()}"

    def summary(self) -> str:
        """F1 in per cent and the numbers of constituents, in one line."""
        return (
            f"F1 {100 * self.f1:.1f}: {len(self.shared)} of {len(_inner_spans(self.tree))} constituents are gold, "
            f"{len(self.crossing)} cross gold ones; {len(self.missed)} of {len(_inner_spans(self.gold))} gold ones "
            "are missed"
        )


def compare_trees(tree: InducedTree, gold: Any) -> TreeComparison:
    """Returns the comparison of a tree with a gold tree; see `InducedTree.compare`.

    Raises:
        ValueError: if the gold tree is malformed or has other words.
    """
    found = [_as_tree(gold)] if not isinstance(gold, str) else _readings(gold)
    for reading in found:
        if list(map(_plain, reading.words)) == list(map(_plain, tree.words)):
            return TreeComparison(tree, InducedTree.from_spans(tree.words, reading.spans()))
    closest = min(found, key=lambda reading: abs(len(reading.words) - len(tree.words)))
    raise ValueError(_difference(tree.words, closest.words))


def _readings(text: str) -> list[InducedTree]:
    """Bracketed text with labels and without: only the words can tell which of them it is."""
    readings, problem = [], None
    for labelled in (True, False):
        try:
            readings.append(InducedTree.from_bracket(text, labelled))
        except ValueError as error:
            problem = error
    if not readings:
        raise problem
    return readings


def _as_tree(gold: Any) -> Any:
    if hasattr(gold, "spans"):
        return gold
    if isinstance(gold, list | tuple):
        return InducedTree.from_nested(gold)
    raise ValueError(
        f"a gold tree is an InducedTree, a GoldTree, a bracketed string or nested lists, not a {type(gold).__name__}"
    )


def _difference(words: Sequence[str], gold: Sequence[str]) -> str:
    if len(words) != len(gold):
        problem = f"the tree has {len(words)} words, the gold tree {len(gold)} ({' '.join(gold)[:60]!r})"
    else:
        position = next(i for i in range(len(gold)) if _plain(words[i]) != _plain(gold[i]))
        problem = f"word {position} is {words[position]!r} in the tree and {gold[position]!r} in the gold tree"
    return f"{problem}; parse the words of the gold tree (`model.parse([list(gold.words)], tokenizer)`)"


def _plain(word: str) -> str:
    """A word without differences of capitals and of the Penn Treebank's escapes."""
    return unescape_word(word.upper() if word.startswith("-") else word).casefold()


def _inner_spans(tree: InducedTree) -> list[Span]:
    return [span for span in tree.spans() if span != (0, len(tree.words))]


def _cross(one: Span, other: Span) -> bool:
    (start, end), (other_start, other_end) = sorted((one, other))
    return start < other_start < end < other_end


def _share(part: int, whole: int, if_none: bool) -> float:
    return part / whole if whole else float(if_none)
