"""From the syntactic distances of words to the tree over them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .induced_tree import InducedTree, as_words


def tree_from_distances(
    distances: Sequence[float], words: Sequence[str], branching_bias: str = "right"
) -> InducedTree:
    """Builds the binary tree that splits a sentence at its largest syntactic distance, and each part in the same way.

    The first of equal distances counts as the largest, except with the rule `"ranges"`.

    Args:
        distances: one number per word (a sequence, or a NumPy array or tensor of shape `[num_words]`). The distance of
            a word tells how far it is from the words before it. The tree keeps them.
        words: the words of the sentence.
        branching_bias: `"right"` is the papers' rule: where word `i` has the largest distance, split into
            `[words before i, [word i, words after i]]` (Shen et al., ICLR 2018 and ICLR 2019). Random distances give
            more right than left branches under it (Dyer, Melis & Blunsom 2019). `"none"` has no such bias: it splits
            into `[words before i, words from i]`, so the distance of the first word is not used. `"ranges"` is the
            rule of the dependency ranges, which the gates of a PRPN are at infinite temperature (Shen et al., ICLR
            2018, appendix on partial overlap): what stands before word `i` in its constituent reaches back to the
            last word with a larger distance. That is `"none"` with the last of equal distances as the largest.

    Returns:
        The tree. 10,000 words take milliseconds, whatever the distances.

    Raises:
        ValueError: if the lengths differ, a distance is NaN, or the bias is unknown.
    """
    words = as_words(words)
    if hasattr(distances, "tolist"):
        distances = distances.tolist()
    try:
        distances = tuple(map(float, distances))
    except TypeError as error:
        raise ValueError("distances must be one flat sequence of numbers, one per word") from error
    if len(distances) != len(words):
        raise ValueError(f"expected one distance per word, got {len(distances)} distances for {len(words)} words")
    if any(map(math.isnan, distances)):
        word = next(word for word, distance in zip(words, distances, strict=True) if math.isnan(distance))
        raise ValueError(f"the distance of the word {word!r} is NaN; check the model's weights and input")
    bracket_counts = [0] * len(words)
    for start, end in _constituents(distances, branching_bias):
        bracket_counts[start] += 1
        bracket_counts[end - 1] -= 1
    return InducedTree(words, tuple(bracket_counts), distances)


def distances_of_tree(tree: InducedTree, branching_bias: str = "right") -> list[float]:
    """Distances from which `tree_from_distances` makes a binary tree again.

    The distance of a word is the height of the constituent that it splits (Shen et al., ACL 2018, "Straight to the
    Tree"), and 0 where it splits none. A constituent is one higher than the higher one of its parts, a word has height
    0.

    Args:
        tree: a binary tree.
        branching_bias: the rule: `"right"` or `"none"`. By `"none"` every binary tree has distances, and that of the
            first word, which is not used, is the largest. By `"right"` those have some in which each right part whose
            sister has two words or more begins with a word as a part of its own.

    Raises:
        ValueError: if the tree is not binary, the rule makes no such tree, or it is another rule.
    """
    if branching_bias not in ("right", "none"):
        raise ValueError(f'branching_bias must be "right" or "none" here, got {branching_bias!r}')
    if not tree.is_binary:
        raise ValueError(f"only binary trees have distances: {tree.to_bracket()[:60]}")
    spans, num_words = tree.spans(), len(tree.words)
    # The second part of a constituent begins where its first one ends: that of the same start and next length.
    middles = {(start, end): start + 1 for start, end in spans}
    for (start, end), (next_start, next_end) in zip(spans, spans[1:], strict=False):
        if start == next_start:
            middles[start, end] = next_end
    heights: dict[tuple[int, int], int] = {}
    for start, end in sorted(spans, key=lambda span: span[1] - span[0]):
        parts = (start, middles[start, end]), (middles[start, end], end)
        heights[start, end] = 1 + max(heights.get(part, 0) for part in parts)

    distances = [0.0] * num_words
    if branching_bias == "none":
        for span, middle in middles.items():
            distances[middle] = float(heights[span])
        distances[:1] = [1.0 + heights.get((0, num_words), 0)] * (num_words > 0)
        return distances
    unsplit = [(0, num_words)]
    while unsplit:
        start, end = unsplit.pop()
        if end - start < 2:
            continue
        middle = middles[start, end]
        if middle == start + 1:
            word = start
        elif end - middle == 1 or middles[middle, end] == middle + 1:
            word = middle
        else:
            raise ValueError(f"the papers' rule makes no such tree: {tree.to_bracket()[:60]}")
        distances[word] = float(heights[start, end])
        unsplit += [(start, word), (word + 1, end)]
    return distances


def _constituents(distances: Sequence[float], branching_bias: str) -> Iterator[tuple[int, int]]:
    """The constituents of two words or more, each once: no two ranges have the same first maximum."""
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
    """For each index, the widest range `(start, end)` around it in which its value is the first maximum."""
    starts, ends = [0] * len(values), [len(values)] * len(values)
    still_maxima: list[int] = []  # maxima of ranges that reach the present index; their values never increase
    for index, value in enumerate(values):
        while still_maxima and values[still_maxima[-1]] < value:
            ends[still_maxima.pop()] = index
        if still_maxima:
            starts[index] = still_maxima[-1] + 1
        still_maxima.append(index)
    return zip(starts, ends, strict=True)
