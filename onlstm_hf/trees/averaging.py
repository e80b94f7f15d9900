"""Averaging trees: the binary tree that agrees best with several trees of the same sentence."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .distances import distances_of_tree
from .induced_tree import InducedTree, tree_from_splits

# Tie-breaking rules.
TIES = ("random", "right", "left")
# Sums of non-integer scores count as equal if they differ by at most this fraction of the largest score.
_ROUNDING = 1e-9


def average_trees(
    trees: Sequence[InducedTree],
    weights: Sequence[float] | None = None,
    branching_bias: str | None = None,
    ties: str = "random",
    seed: int | np.random.Generator = 0,
) -> InducedTree:
    """Returns the binary tree that shares the most constituents with the given trees.

    Against binary trees, it has the highest mean precision, recall and F1 (Goodman 1996), so it is the
    minimum-Bayes-risk tree if each given tree is equally likely to be right. A CYK chart over the span counts finds it
    exactly, in cubic time.

    Ties are common, and their rule can change the F1 by more than averaging gains, as English is right-branching.

    Args:
        trees: trees over the same words, binary or not, in any order.
        weights: finite, non-negative weights of the trees, at least one of them positive; by default 1 each.
        branching_bias: a rule of `tree_from_distances`, `"right"` or `"none"`. The average is then the best tree that
            this rule can make, with distances from which the rule rebuilds it (`distances_of_tree`).
        ties: `"random"` draws one of the best trees uniformly. `"right"` chooses the leftmost split of each
            constituent, top down, which gives right branching. `"left"` chooses the rightmost splits.
        seed: seed of the random choice. Pass the same `numpy.random.Generator` to the calls for several sentences:
            with a fixed integer, sentences with the same ties get the same choice.

    Raises:
        ValueError: if there is no tree, the words differ, the weights are not as described, or a rule is unknown.
    """
    trees = list(trees)
    weights = [1] * len(trees) if weights is None else list(weights)
    if not trees:
        raise ValueError("there is no tree to average")
    if len(weights) != len(trees) or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"expected {len(trees)} finite, non-negative weights, at least one positive, got {weights}")
    words = trees[0].words
    counts = np.zeros((len(words) + 1, len(words) + 1), dtype=np.asarray(weights).dtype)
    for index, (tree, weight) in enumerate(zip(trees, weights, strict=True)):
        if tree.words != words:
            raise ValueError(f"tree {index} and tree 0 have different words: {tree!r} and {trees[0]!r}")
        for start, end in tree.spans():
            counts[start, end] += weight
    return best_trees(counts[None], [words], branching_bias, ties, seed)[0]


def best_trees(
    scores: np.ndarray,
    sentences: Sequence[Sequence[str]],
    branching_bias: str | None = None,
    ties: str = "random",
    seed: int | np.random.Generator = 0,
) -> list[InducedTree]:
    """Returns, for `B` sentences of one length, the binary trees whose constituents have the highest sum of scores.

    `scores` `[B, num_words + 1, num_words + 1]` has the score of each span by its start and end, such as a count or
    the probability under a grammar. For the other arguments see `average_trees`.
    """
    if ties not in TIES:
        raise ValueError(f'ties must be "random", "right" or "left", got {ties!r}')
    chart = _Chart(scores, branching_bias == "right", ties, np.random.default_rng(seed) if ties == "random" else None)
    trees = [chart.best_tree(row, words) for row, words in enumerate(sentences)]
    if branching_bias is None:
        return trees
    return [replace(tree, distances=tuple(distances_of_tree(tree, branching_bias))) for tree in trees]


class _Chart:
    """CYK chart: the best binary trees over all spans of sentences of one length.

    Values are stored twice, by (width, start) and by (width, end), so that left and right parts are slices. By the
    papers' rule, a right part whose left sister has several words must begin with a single word. Then the tables by
    end cover only such trees.
    """

    def __init__(self, scores: np.ndarray, by_papers_rule: bool, ties: str, generator: np.random.Generator | None):
        self.by_papers_rule, self.ties, self.generator = by_papers_rule, ties, generator
        self.num_words = num_words = scores.shape[-1] - 1
        is_whole = np.issubdtype(scores.dtype, np.integer)
        self.tolerance = 0 if is_whole else _ROUNDING * np.abs(scores).max(initial=0)
        self.by_start, self.by_end = np.zeros_like(scores), np.zeros_like(scores)
        # Numbers of best trees for random ties, in logarithms as they grow like 4 ** num_words.
        self.trees_by_start, self.trees_by_end = np.zeros(scores.shape), np.zeros(scores.shape)
        for width in range(2, num_words + 1):
            starts, ends, seconds = slice(num_words - width + 1), slice(width, None), slice(1, num_words - width + 2)
            sums = self._combine_parts(width, 0, num_words, self.by_start, self.by_end)
            best, span_scores = sums.max(axis=1), scores.diagonal(width, 1, 2)
            self.by_start[:, width, starts] = span_scores + best
            best_at_end = self.by_start[:, width - 1, seconds] if by_papers_rule else best
            self.by_end[:, width, ends] = span_scores + best_at_end
            if ties == "random":
                trees = self._combine_parts(width, 0, num_words, self.trees_by_start, self.trees_by_end)
                is_best = sums >= best[:, None] - self.tolerance
                trees = np.logaddexp.reduce(np.where(is_best, trees, -np.inf), axis=1)
                self.trees_by_start[:, width, starts] = trees
                right_parts = self.trees_by_start[:, width - 1, seconds] if by_papers_rule else trees
                self.trees_by_end[:, width, ends] = right_parts

    def _combine_parts(
        self, width: int, first: int, last: int, by_start: np.ndarray, by_end: np.ndarray
    ) -> np.ndarray:
        """Adds the values of both parts, for each split of the spans of one width from word `first` to `last`.

        The result `[B, width - 1, spans]` is by the width of the left part.
        """
        values = by_start[:, 1:width, first : last - width + 1]
        values = values + by_end[:, width - 1 : 0 : -1, first + width : last + 1]
        if self.by_papers_rule:
            values[:, 0] = by_start[:, width - 1, first + 1 : last - width + 2]
        return values

    def best_tree(self, row: int, words: Sequence[str]) -> InducedTree:
        """Returns one of the best trees of a sentence."""
        right_sisters = set()  # must begin with a single word by the papers' rule

        def choose_split(start: int, end: int) -> int:
            if (start, end) in right_sisters:
                return start + 1
            split = self._choose_split(row, start, end)
            if self.by_papers_rule and split - start > 1:
                right_sisters.add((split, end))
            return split

        return tree_from_splits(words, choose_split)

    def _choose_split(self, row: int, start: int, end: int) -> int:
        """Chooses one of the best splits; random ties are in proportion to the number of best trees of each split."""
        rows, width = slice(row, row + 1), end - start
        sums = self._combine_parts(width, start, end, self.by_start[rows], self.by_end[rows])[0, :, 0]
        best = np.flatnonzero(sums >= sums.max() - self.tolerance)
        chosen = best[-1] if self.ties == "left" else best[0]
        if self.ties == "random" and len(best) > 1:
            log_counts = self._combine_parts(width, start, end, self.trees_by_start[rows], self.trees_by_end[rows])
            log_counts = log_counts[0, best, 0]
            shares = np.exp(log_counts - log_counts.max())
            chosen = self.generator.choice(best, p=shares / shares.sum())
        return start + 1 + int(chosen)
