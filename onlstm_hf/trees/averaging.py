"""Averaging trees: the binary tree that agrees best with several trees of the same sentence."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .distances import distances_of_tree
from .induced_tree import InducedTree


def average_trees(
    trees: Sequence[InducedTree], weights: Sequence[float] | None = None, branching_bias: str | None = None
) -> InducedTree:
    """The binary tree that shares the most constituents with the given trees, counted over all of them.

    If each of the given trees is equally likely to be right, this is the minimum-Bayes-risk tree: all binary trees of
    a sentence have the same number of constituents, so that against binary trees the one with the highest count also
    has the highest mean precision, recall and F1 (Goodman 1996). It is found exactly, by a CYK chart over the counts
    of the spans, in time cubic in the number of words.

    Among equally good trees it is the one whose constituents split as far to the left as possible, from the whole
    sentence downwards, and which so branches to the right. There are several, for instance, where two trees share no
    constituent.

    Args:
        trees: trees over the same words, binary or not. Their order does not matter.
        weights: what each tree counts, not negative; by default 1.
        branching_bias: a rule of `tree_from_distances`, `"right"` or `"none"`: the average is then the best one of the
            trees that this rule can make, and has distances from which it makes it again (`distances_of_tree`).

    Raises:
        ValueError: if there is no tree, the words differ, the weights are negative or not as many, or the rule is
            another one.
    """
    trees = list(trees)
    weights = [1] * len(trees) if weights is None else list(weights)
    if not trees:
        raise ValueError("there is no tree to average")
    if len(weights) != len(trees) or not all(weight >= 0 for weight in weights):
        raise ValueError(f"expected a weight that is not negative for each of {len(trees)} trees, got {weights}")
    words = trees[0].words
    for index, tree in enumerate(trees):
        if tree.words != words:
            raise ValueError(
                f"tree {index} has other words than tree 0: {' '.join(tree.words)[:60]!r}, "
                f"not {' '.join(words)[:60]!r}"
            )
    counts = np.zeros((len(words) + 1, len(words) + 1), dtype=np.asarray(weights).dtype)
    for tree, weight in zip(trees, weights, strict=True):
        for start, end in tree.spans():
            counts[start, end] += weight
    average = InducedTree.from_spans(words, _best_spans(counts, by_papers_rule=branching_bias == "right"))
    if branching_bias is None:
        return average
    return replace(average, distances=tuple(distances_of_tree(average, branching_bias)))


def _best_spans(counts: np.ndarray, by_papers_rule: bool) -> list[tuple[int, int]]:
    """The constituents of the binary tree with the highest sum of counts.

    Args:
        counts: `[num_words + 1, num_words + 1]`, the count of every span by its start and end.
        by_papers_rule: only among the trees that the rule `"right"` can make. In these a right part begins with a word
            as a part of its own, unless its sister is one word.
    """
    num_words = len(counts) - 1
    # The best sum of a tree over a span, in two tables: by width and start, and by width and end. So the sums of the
    # left parts of all spans of one width can be read as a slice, and those of the right parts as another. By the
    # papers' rule the second one has the best trees of the right parts that it can make.
    by_start = np.zeros((num_words + 1, num_words + 1), dtype=counts.dtype)
    by_end = np.zeros_like(by_start)
    first_width = np.ones_like(by_start)
    for width in range(2, num_words + 1):
        starts = np.arange(num_words - width + 1)
        sums = by_start[1:width, starts] + by_end[width - 1 : 0 : -1, starts + width]
        without_first = by_start[width - 1, starts + 1]
        if by_papers_rule:
            sums[0] = without_first
        first_width[width, starts] = 1 + sums.argmax(axis=0)
        own = counts[starts, starts + width]
        by_start[width, starts] = own + sums.max(axis=0)
        by_end[width, starts + width] = own + without_first if by_papers_rule else by_start[width, starts]
    spans = []
    unsplit = [(0, num_words)]
    while unsplit:
        start, end = unsplit.pop()
        if end - start > 1:
            spans.append((start, end))
            split = start + int(first_width[end - start, start])
            unsplit.append((start, split))
            if by_papers_rule and split - start > 1:
                spans.append((split, end))
                split += 1
            unsplit.append((split, end))
    return spans
