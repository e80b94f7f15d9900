"""Punctuation between the words of a tree: as a cue to constituents, and as leaves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import pstdev
from typing import NamedTuple
from unicodedata import category

from .induced_tree import InducedTree

PUNCTUATION = ("drop", "attach", "cue")
# Standard deviations that a mark adds to a distance, chosen on Spanish, Portuguese and Dutch trees (docs/text.md).
CUE_STRENGTH = 4.0

# Opening marks, each with the marks that can close it. `` counts as “, and '' as ”.
CLOSING_MARKS = {
    **{"(": ")", "[": "]", "{": "}", "（": "）", "［": "］", "｛": "｝"},
    **{"〈": "〉", "《": "》", "「": "」", "『": "』", "【": "】"},
    **{"“": '”"', "‘": "’", "„": "“”", "‚": "‘’", "«": "»", "‹": "›", "»": "«»", "›": "‹›", "”": "”"},
    **{'"': '"', "'": "'", "`": "`'", "*": "*", "_": "_", "¿": "?", "¡": "!"},
}


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

    An opening mark (a bracket, a quotation mark) and the one that closes it hang on the same constituent: the smallest
    that has all words between them, as paired punctuation does in Universal Dependencies. Single marks are those
    without a partner, pairs without a word between them, and pairs whose words another constituent has only in part,
    so that lines would cross.

    A single opening mark begins the largest constituent that begins after it. Every other single mark hangs as high as
    it can between its neighbours: on the smallest constituent that has both. Marks before the first and after the last
    word hang on the root. A paired mark between it and that place keeps it on its own constituent.

    Words and the constituents over them stay the same. Distances of marks are NaN.

    Args:
        tree: a tree with the offsets of its words.
        text: the sentence.
        marks: for each word the places of the marks before it, and at last those after the last word
            (`mark_offsets` of onlstm_hf/text/word_alignment.py).
    """
    leaves: list[tuple[int, int]] = []  # places in the text
    word_at: list[int] = []  # for each word its leaf
    found: list[_Mark] = []
    for gap, places in enumerate(marks):
        for place in places:
            found.append(_mark_of(tree, text, place, gap, len(leaves)))
            leaves.append(place)
        if gap < len(tree.words):
            word_at.append(len(leaves))
            leaves.append(tree.offsets[gap])

    held = _constituents_with_marks(tree.spans(), found, word_at)
    spans = []
    for start, end in tree.spans():
        inside = [leaf for leaf, holder in held[start] + held[end] if _has((start, end), *holder)]
        spans.append((min([word_at[start], *inside]), max([word_at[end - 1], *inside]) + 1))
    spans = spans[1:]  # all marks that are on no other constituent are the root's
    distances, unknown = [math.nan] * len(leaves), [False] * len(leaves)
    for number, leaf in enumerate(word_at):
        distances[leaf], unknown[leaf] = tree.distances[number], tree.unknown[number]
    with_marks = InducedTree.from_spans([text[start:end] for start, end in leaves], spans, distances)
    return replace(with_marks, offsets=tuple(leaves), unknown=tuple(unknown))


class _Mark(NamedTuple):
    kind: str  # its character, see `CLOSING_MARKS`
    gap: int  # the number of words before it
    leaf: int
    can_open: bool
    can_close: bool


def _mark_of(tree: InducedTree, text: str, place: tuple[int, int], gap: int, leaf: int) -> _Mark:
    """Reads off the text whether a mark can open and close: a quotation mark looks the same at both ends."""
    start, end = place
    kind = {"``": "“", "''": "”"}.get(text[start:end], text[start])
    before = None if gap == 0 else text[tree.offsets[gap - 1][1] : start]
    after = None if gap == len(tree.words) else text[end : tree.offsets[gap][0]]
    touches_left, touches_right = (
        between is not None and not any(map(str.isspace, between)) for between in (before, after)
    )
    by_nature = category(kind) in ("Ps", "Pi") or kind in "¿¡"
    can_open = by_nature or (kind in CLOSING_MARKS and (touches_right or not touches_left))
    can_close = kind not in CLOSING_MARKS or touches_left or not touches_right
    return _Mark(kind, gap, leaf, can_open, can_close)


def _pairs_of(marks: Sequence[_Mark]) -> list[tuple[_Mark, _Mark]]:
    """Pairs each mark that can close with the last open one of its kind. Marks left open between them stay single."""
    pairs: list[tuple[_Mark, _Mark]] = []
    opened: list[_Mark] = []
    for mark in marks:
        depth = len(opened) - 1 if mark.can_close else -1
        while depth >= 0 and mark.kind not in CLOSING_MARKS.get(opened[depth].kind, ""):
            depth -= 1
        if depth >= 0:
            pairs.append((opened[depth], mark))
            del opened[depth:]
        elif mark.can_open:
            opened.append(mark)
    return pairs


def _constituents_with_marks(
    constituents: Sequence[tuple[int, int]], marks: Sequence[_Mark], word_at: Sequence[int]
) -> dict[int, list[tuple[int, tuple[int, int]]]]:
    """The leaves of the marks at the ends of constituents, by gap, each with the constituent that it hangs on."""
    holders: dict[int, tuple[int, int]] = {}
    closing = set()
    for first, last in _pairs_of(marks):
        closing.add(last.leaf)
        if holder := _smallest_with(constituents, first.gap, last.gap):
            holders[first.leaf] = holders[last.leaf] = holder
    largest = {start: (start, end) for start, end in reversed(constituents)}  # of those that begin with a word
    following = list(word_at)
    for mark in reversed(marks):
        if mark.gap in largest and mark.leaf == following[mark.gap] - 1 and mark.can_open and mark.leaf not in closing:
            start, _ = holders.setdefault(mark.leaf, largest[mark.gap])
            if start == mark.gap:
                following[mark.gap] = mark.leaf
    held = defaultdict(list)
    for mark in marks:
        if mark.leaf in holders:
            held[mark.gap].append((mark.leaf, holders[mark.leaf]))
    return held


def _smallest_with(constituents: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """The smallest constituent with these words; `None` where there are none, or another constituent crosses them."""
    smallest = None
    for span in constituents if start < end else ():
        if _has(span, start, end):
            smallest = span
        elif span[0] < start < span[1] or span[0] < end < span[1]:
            return None
    return smallest


def _has(span: tuple[int, int], start: int, end: int) -> bool:
    return span[0] <= start and end <= span[1]
