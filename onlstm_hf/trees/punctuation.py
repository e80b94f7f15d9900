"""Punctuation between the words of a tree: as a cue to constituents, and as leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import pstdev
from unicodedata import category

from .induced_tree import InducedTree

PUNCTUATION = ("drop", "attach", "cue")
# Standard deviations that a mark adds to a distance, chosen on Spanish, Portuguese and Dutch trees (docs/text.md).
CUE_STRENGTH = 4.0


def check_punctuation(punctuation: str) -> None:
    if punctuation not in PUNCTUATION:
        raise ValueError(f"punctuation must be {', '.join(map(repr, PUNCTUATION))}, not {punctuation!r}")


def raise_at_marks(
    distances: Sequence[float], after_mark: Sequence[bool], strength: float = CUE_STRENGTH
) -> list[float]:
    """Raises the syntactic distance of each word that a mark stands before.

    Models that were trained without punctuation gain from it as a cue (Spitkovsky, Alshawi & Jurafsky, CoNLL 2011,
    "Punctuation: Making a Point in Unsupervised Dependency Parsing").

    Args:
        distances: one number per word.
        after_mark: for each word whether a mark stands between it and the word before. That of the first word counts
            as false.
        strength: what is added, in standard deviations of the sentence's distances.
    """
    if len(distances) < 2:
        return list(distances)
    step = strength * pstdev(distances)
    marked = [False, *after_mark[1:]]
    return [distance + step * mark for distance, mark in zip(distances, marked, strict=True)]


def attach_marks(tree: InducedTree, text: str, marks: Sequence[Sequence[tuple[int, int]]]) -> InducedTree:
    """Hangs marks on a tree of words, as treebanks do.

    An opening mark (a bracket, a quotation mark before a word) begins the largest constituent that begins after it.
    Every other mark hangs as high as it can between its neighbours: on the smallest constituent that has both. Marks
    before the first and after the last word hang on the root. Distances of marks are NaN.

    Args:
        tree: a tree with the offsets of its words.
        text: the sentence.
        marks: for each word the places of the marks before it, and at last those after the last word
            (`mark_offsets` of onlstm_hf/text/word_alignment.py).
    """
    leaves: list[tuple[int, int]] = []  # places in the text
    word_at, begin = [], []  # for each word its leaf, and that of the first opening mark before it
    for number, gap in enumerate(marks):
        is_last = number == len(tree.words)
        num_opening = 0
        while not is_last and num_opening < len(gap) and _opens(text, gap[-1 - num_opening]):
            num_opening += 1
        leaves += gap
        begin.append(len(leaves) - num_opening)
        if not is_last:
            word_at.append(len(leaves))
            leaves.append(tree.offsets[number])
    spans, previous_start = [], 0
    for start, end in tree.spans()[1:]:  # without the root; the largest that begins with a word comes first
        spans.append((word_at[start] if start == previous_start else begin[start], word_at[end - 1] + 1))
        previous_start = start
    distances, unknown = [math.nan] * len(leaves), [False] * len(leaves)
    for number, leaf in enumerate(word_at):
        distances[leaf], unknown[leaf] = tree.distances[number], tree.unknown[number]
    with_marks = InducedTree.from_spans([text[start:end] for start, end in leaves], spans, distances)
    return replace(with_marks, offsets=tuple(leaves), unknown=tuple(unknown))


def _opens(text: str, place: tuple[int, int]) -> bool:
    start, end = place
    if category(text[start]) in ("Ps", "Pi") or text[start] in "¿¡" or text[start:end] == "``":
        return True
    return text[start] in "\"'*_" and (start == 0 or text[start - 1].isspace() or category(text[start - 1]) == "Ps")
