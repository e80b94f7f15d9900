"""Punctuation between the words of a tree, as a cue for parsing or as leaves."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import pstdev
from typing import NamedTuple
from unicodedata import category

from .induced_tree import InducedTree, cross

PUNCTUATION = ("drop", "attach", "cue")
# A mark adds this many standard deviations to a distance; tuned on Spanish, Portuguese and Dutch (docs/text.md).
CUE_STRENGTH = 4.0

# Opening marks, each with the marks that can close it.
CLOSING_MARKS = {
    **{"(": ")", "[": "]", "{": "}", "（": "）", "［": "］", "｛": "｝"},
    **{"〈": "〉", "《": "》", "「": "」", "『": "』", "【": "】"},
    **{"“": '”"', "‘": "’", "„": "“”", "‚": "‘’", "«": "»", "‹": "›", "»": "«»", "›": "‹›", "”": "”"},
    **{'"': '"', "'": "'", "`": "`'", "*": "*", "_": "_", "¿": "?", "¡": "!"},
}
# Marks in the spelling of the Penn Treebank.
_PENN_MARKS = {
    **{"``": "“", "''": "”", "-LRB-": "(", "-RRB-": ")"},
    **{"-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"},
}


def check_punctuation(punctuation: str) -> None:
    if punctuation not in PUNCTUATION:
        raise ValueError(f"punctuation must be {', '.join(map(repr, PUNCTUATION))}, not {punctuation!r}")


def raise_at_marks(
    distances: Sequence[float], after_mark: Sequence[bool], strength: float = CUE_STRENGTH
) -> list[float]:
    """Raises the syntactic distance of each word that follows a punctuation mark.

    The cue helps models that were trained without punctuation (Spitkovsky, Alshawi & Jurafsky, CoNLL 2011,
    "Punctuation: Making a Point in Unsupervised Dependency Parsing").

    `after_mark` says for each word whether a mark precedes it; it is ignored for the first word. The added amount is
    `strength` standard deviations of the sentence's distances.
    """
    if len(distances) < 2:
        return list(distances)
    step = strength * pstdev(distances)
    marked = [False, *after_mark[1:]]
    return [distance + step * mark for distance, mark in zip(distances, marked, strict=True)]


def attach_marks(tree: InducedTree, text: str, marks: Sequence[Sequence[tuple[int, int]]]) -> InducedTree:
    """Attaches punctuation marks to a tree of words as leaves, as treebanks do; their distances are NaN.

    A pair of an opening and a closing mark (brackets, quotation marks) attaches to the smallest constituent that has
    all words between them, like paired punctuation in Universal Dependencies. Pairs that have no word between them or
    would cross a constituent are two single marks.

    A single opening mark begins the largest constituent that starts after it. Any other single mark attaches to the
    smallest constituent that has both neighbouring words, or to the root at the ends of the sentence. A single mark
    inside a pair stays on the constituent of the pair.

    Args:
        tree: a tree with the offsets of its words.
        text: the sentence.
        marks: for each word the offsets of the marks before it, and finally of those after the last word
            (`mark_offsets` of onlstm_hf/text/word_alignment.py).
    """
    leaves: list[tuple[int, int]] = []  # offsets in the text
    word_leaves: list[int] = []  # leaf index of each word
    parsed_marks: list[_Mark] = []
    for gap, gap_marks in enumerate(marks):
        for offsets in gap_marks:
            parsed_marks.append(_read_mark(tree, text, offsets, gap, len(leaves)))
            leaves.append(offsets)
        if gap < len(tree.words):
            word_leaves.append(len(leaves))
            leaves.append(tree.offsets[gap])

    parents = _parents(tree.spans(), parsed_marks, word_leaves)
    spans = []
    for start, end in tree.spans()[1:]:  # the root takes all other marks
        inside = [
            mark.leaf
            for mark, parent in parents.items()
            if mark.gap in (start, end) and start <= parent[0] and parent[1] <= end
        ]
        spans.append((min([word_leaves[start], *inside]), max([word_leaves[end - 1], *inside]) + 1))
    distances, unknown = [math.nan] * len(leaves), [False] * len(leaves)
    for number, leaf in enumerate(word_leaves):
        distances[leaf], unknown[leaf] = tree.distances[number], tree.unknown[number]
    with_marks = InducedTree.from_spans([text[start:end] for start, end in leaves], spans)
    return replace(with_marks, distances=tuple(distances), offsets=tuple(leaves), unknown=tuple(unknown))


class _Mark(NamedTuple):
    kind: str  # a character, see `CLOSING_MARKS`
    gap: int  # number of words before the mark
    leaf: int  # leaf index
    can_open: bool
    can_close: bool


def _read_mark(tree: InducedTree, text: str, offsets: tuple[int, int], gap: int, leaf: int) -> _Mark:
    """Decides by the adjacent white space whether a mark can open or close, as `"` can do both."""
    start, end = offsets
    kind = _PENN_MARKS.get(text[start:end].upper(), text[start])
    touches_left = gap > 0 and not re.search(r"\s", text[tree.offsets[gap - 1][1] : start])
    touches_right = gap < len(tree.words) and not re.search(r"\s", text[end : tree.offsets[gap][0]])
    always_opens = category(kind) in ("Ps", "Pi") or kind in "¿¡"
    can_open = always_opens or (kind in CLOSING_MARKS and (touches_right or not touches_left))
    can_close = kind not in CLOSING_MARKS or touches_left or not touches_right
    return _Mark(kind, gap, leaf, can_open, can_close)


def _pair_marks(marks: Sequence[_Mark]) -> list[tuple[_Mark, _Mark]]:
    """Pairs each closing mark with the last open mark that it can close; open marks between the two stay single."""
    pairs: list[tuple[_Mark, _Mark]] = []
    open_marks: list[_Mark] = []
    for mark in marks:
        depth = len(open_marks) - 1 if mark.can_close else -1
        while depth >= 0 and mark.kind not in CLOSING_MARKS.get(open_marks[depth].kind, ""):
            depth -= 1
        if depth >= 0:
            pairs.append((open_marks[depth], mark))
            del open_marks[depth:]
        elif mark.can_open:
            open_marks.append(mark)
    return pairs


def _parents(
    constituents: Sequence[tuple[int, int]], marks: Sequence[_Mark], word_leaves: Sequence[int]
) -> dict[_Mark, tuple[int, int]]:
    """Returns the constituent to which each paired or single opening mark attaches."""
    parents: dict[_Mark, tuple[int, int]] = {}
    pairs = _pair_marks(marks)
    for first, last in pairs:
        if parent := _smallest_constituent(constituents, first.gap, last.gap):
            parents[first] = parents[last] = parent
    closing = {last for _, last in pairs}
    largest = {start: (start, end) for start, end in reversed(constituents)}  # by first word
    first_leaves = list(word_leaves)
    for mark in reversed(marks):
        is_adjacent = mark.gap in largest and mark.leaf == first_leaves[mark.gap] - 1
        if is_adjacent and mark.can_open and mark not in closing:
            start, _ = parents.setdefault(mark, largest[mark.gap])
            if start == mark.gap:
                first_leaves[mark.gap] = mark.leaf
    return parents


def _smallest_constituent(constituents: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """Returns the smallest constituent around these words; `None` for no words, or if a constituent crosses them."""
    if start == end or any(cross((start, end), span) for span in constituents):
        return None
    return next((span for span in reversed(constituents) if span[0] <= start and end <= span[1]), None)
