"""In which order syntactic distances split a sentence, to show it step by step."""

from __future__ import annotations

from typing import NamedTuple

from .induced_tree import InducedTree


class Split(NamedTuple):
    """A constituent's place in the order of the splits.

    Attributes:
        step: from 1 on. The largest distance splits first. Under the papers' rule a word's distance splits twice in
            one step, before the word and after it.
        word: the index of the word whose distance splits the constituent.
    """

    step: int
    word: int


def splits_of(tree: InducedTree, branching_bias: str) -> dict[tuple[int, int], Split]:
    """Returns the distance at which `tree_from_distances` split each constituent.

    Args:
        tree: the tree with its distances.
        branching_bias: the rule that it was made with.
    """
    spans = tree.spans()
    # The second part of a binary constituent begins where its first one ends: that of the same start and next length.
    ends = {(start, end): start + 1 for start, end in spans}
    for (start, end), (next_start, next_end) in zip(spans, spans[1:], strict=False):
        if start == next_start:
            ends[start, end] = next_end
    words = {
        (start, end): max(range(start, end), key=tree.distances.__getitem__)  # the first of equal ones
        if branching_bias == "right"
        else ends[start, end]
        for start, end in spans
    }
    ordered = sorted(spans, key=lambda span: (-tree.distances[words[span]], span[0] - span[1]))
    steps = {word: step for step, word in enumerate(dict.fromkeys(words[span] for span in ordered), start=1)}
    return {span: Split(steps[words[span]], words[span]) for span in spans}
