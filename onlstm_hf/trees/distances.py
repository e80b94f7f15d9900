"""Conversion of syntactic distances to trees, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .induced_tree import InducedTree, as_words


def tree_from_distances(
    distances: Sequence[float], words: Sequence[str], branching_bias: str = "right"
) -> InducedTree:
    """Builds the binary tree that recursively splits a sentence at its largest syntactic distance, in linear time.

    Ties go to the first word, except with the rule `"ranges"`.

    Args:
        distances: one number per word, as a sequence, NumPy array or tensor of shape `[num_words]`. It measures how
            far the word is from the words before it. The tree stores the distances.
        words: the words of the sentence.
        branching_bias: the rule; word `i` has the largest distance.
            `"right"`: the papers' rule splits into `[words before i, [word i, words after i]]` (Shen et al., ICLR 2018
            and ICLR 2019). It is biased to right branching (Dyer, Melis & Blunsom 2019).
            `"none"`: unbiased; splits into `[words before i, words from i]` and ignores the first word's distance.
            `"ranges"`: `"none"` with ties broken to the last word. It follows the dependency ranges, the gates of a
            PRPN at infinite temperature (Shen et al., ICLR 2018, appendix on partial overlap): the part before word
            `i` of its constituent reaches back to the last word with a larger distance.

    Raises:
        ValueError: if the lengths differ, a distance is NaN, or the bias is unknown.
    """
    words = as_words(words)
    distances = tuple(map(float, distances.tolist() if hasattr(distances, "tolist") else distances))
    if len(distances) != len(words):
        raise ValueError(f"expected one distance per word, got {len(distances)} distances for {len(words)} words")
    for word, distance in zip(words, distances, strict=True):
        if math.isnan(distance):
            raise ValueError(f"the distance of the word {word!r} is NaN; check the model's weights and input")
    bracket_counts = [0] * len(words)
    for start, end in _constituents(distances, branching_bias):
        bracket_counts[start] += 1
        bracket_counts[end - 1] -= 1
    return InducedTree(words, tuple(bracket_counts), distances)


def distances_of_tree(tree: InducedTree, branching_bias: str = "right") -> list[float]:
    """Returns distances from which `tree_from_distances` rebuilds a binary tree.

    The distance of a word is the height of the constituent that it splits, or 0 if it splits none (Shen et al., ACL
    2018, "Straight to the Tree"). A word has height 0, and a constituent is one higher than its higher part.

    The rules `"none"` and `"ranges"` can make every binary tree; the unused distance of the first word is the largest.
    `"right"` needs right parts that begin with a single word, unless the left sister is one word.

    Raises:
        ValueError: if the tree is not binary, the rule cannot make this tree, or the rule is unknown.
    """
    if not tree.is_binary:
        raise ValueError(f"only binary trees have distances: {tree.to_bracket()[:60]}")
    spans = tree.spans()
    # A constituent's second part begins where its first part ends. A first part of several words is the next span.
    middles = {(start, end): start + 1 for start, end in spans}
    for (start, end), (next_start, next_end) in zip(spans, spans[1:], strict=False):
        if start == next_start:
            middles[start, end] = next_end
    heights: dict[tuple[int, int], int] = {}
    distances = [0.0] * len(tree.words)
    for start, end in sorted(spans, key=lambda span: span[1] - span[0]):
        middle = middles[start, end]
        heights[start, end] = 1 + max(heights.get((start, middle), 0), heights.get((middle, end), 0))
        splits_first_word = branching_bias == "right" and middle == start + 1
        # With the papers' rule, a right part that begins with this word has set its distance before.
        distances[start if splits_first_word else middle] = float(heights[start, end])
    if branching_bias != "right" and distances:
        distances[0] = 1 + max(distances)
    if tree_from_distances(distances, tree.words, branching_bias) != tree:
        raise ValueError(f"the papers' rule makes no such tree: {tree.to_bracket()[:60]}")
    return distances


def _constituents(distances: Sequence[float], branching_bias: str) -> Iterator[tuple[int, int]]:
    """Yields each constituent of two words or more once: no two ranges have the same first maximum."""
    if branching_bias == "right":
        for word_index, (start, end) in enumerate(_ranges_of_maxima(distances)):
            if end - start > 1:
                yield start, end
            if start < word_index < end - 1:
                yield word_index, end
    elif branching_bias == "none":
        yield from ((start, end + 1) for start, end in _ranges_of_maxima(distances[1:]))
    elif branching_bias == "ranges":
        last_word = len(distances) - 1
        backwards = _ranges_of_maxima(distances[:0:-1])
        yield from ((last_word - end, last_word - start + 1) for start, end in backwards)
    else:
        raise ValueError(f'branching_bias must be "right", "none" or "ranges", got {branching_bias!r}')


def _ranges_of_maxima(values: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yields, for each index, the widest range `(start, end)` around it in which its value is the first maximum."""
    starts, ends = [0] * len(values), [len(values)] * len(values)
    stack: list[int] = []  # maxima of ranges that are still open; their values never increase
    for index, value in enumerate(values):
        while stack and values[stack[-1]] < value:
            ends[stack.pop()] = index
        if stack:
            starts[index] = stack[-1] + 1
        stack.append(index)
    return zip(starts, ends, strict=True)
