"""Averaging trees: the binary tree that agrees best with several trees of the same sentence."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .distances import distances_of_tree
from .induced_tree import InducedTree

# Which of equally good trees is taken.
TIES = ("random", "right", "left")
# Sums of weights that are no whole numbers count as equal where they differ by less, as a share of the largest weight.
_ROUNDING = 1e-9


def average_trees(
    trees: Sequence[InducedTree],
    weights: Sequence[float] | None = None,
    branching_bias: str | None = None,
    ties: str = "random",
    seed: int | np.random.Generator = 0,
) -> InducedTree:
    """The binary tree that shares the most constituents with the given trees, counted over all of them.

    If each of the given trees is equally likely to be right, this is the minimum-Bayes-risk tree: all binary trees of
    a sentence have the same number of constituents, so that against binary trees the one with the highest count also
    has the highest mean precision, recall and F1 (Goodman 1996). It is found exactly, by a CYK chart over the counts
    of the spans, in time cubic in the number of words.

    Often several trees are equally good, for instance where two trees share no constituent. The rule for such ties can
    change the F1 by more than the average gains: English branches to the right.

    Args:
        trees: trees over the same words, binary or not. Their order does not matter.
        weights: what each tree counts, not negative; by default 1.
        branching_bias: a rule of `tree_from_distances`, `"right"` or `"none"`: the average is then the best one of the
            trees that this rule can make, and has distances from which it makes it again (`distances_of_tree`).
        ties: `"random"` draws one of the equally good trees, each with the same probability. `"right"` takes the one
            whose constituents split as far to the left as possible, from the whole sentence downwards, and which so
            branches to the right; `"left"` the one whose constituents split as far to the right as possible.
        seed: of the random choice. For many sentences give one `numpy.random.Generator` to all calls: the same number
            would make the same choice in sentences with the same ties.

    Raises:
        ValueError: if there is no tree, the words differ, the weights are negative or not as many, or a rule is
            unknown.
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
    return best_tree(counts, words, branching_bias, ties, seed)


def best_tree(
    scores: np.ndarray,
    words: Sequence[str],
    branching_bias: str | None = None,
    ties: str = "random",
    seed: int | np.random.Generator = 0,
) -> InducedTree:
    """The binary tree whose constituents have the highest sum of scores.

    Args:
        scores: `[num_words + 1, num_words + 1]`, the score of every span by its start and end: counts, or the
            probabilities that a grammar gives them.
        words: the words of the sentence.
        branching_bias, ties, seed: as for `average_trees`.

    Raises:
        ValueError: if a rule is unknown.
    """
    if ties not in TIES:
        raise ValueError(f'ties must be "random", "right" or "left", got {ties!r}')
    chart = _Chart(scores, by_papers_rule=branching_bias == "right", counts_trees=ties == "random")
    tree = InducedTree.from_spans(words, chart.spans(ties, np.random.default_rng(seed) if ties == "random" else None))
    if branching_bias is None:
        return tree
    return replace(tree, distances=tuple(distances_of_tree(tree, branching_bias)))


class _Chart:
    """The best binary trees over all spans of a sentence.

    Tables stand twice: by width and start, and by width and end. So the values of the left parts of all spans of one
    width can be read as a slice, and those of the right parts as another. By the papers' rule the tables by end have
    only the trees of right parts that it can make. In these a right part begins with a word as a part of its own,
    unless its sister is one word.

    Args:
        scores: as for `best_tree`.
        by_papers_rule: only the trees that the rule `"right"` can make.
        counts_trees: also count the best trees.
    """

    def __init__(self, scores: np.ndarray, by_papers_rule: bool, counts_trees: bool):
        self.num_words, self.by_papers_rule = len(scores) - 1, by_papers_rule
        is_whole = np.issubdtype(scores.dtype, np.integer)
        self.tolerance = 0 if is_whole else _ROUNDING * np.abs(scores).max(initial=0)
        shape = (self.num_words + 1, self.num_words + 1)
        self.by_start, self.by_end = np.zeros(shape, dtype=scores.dtype), np.zeros(shape, dtype=scores.dtype)
        # Logarithms of the numbers of best trees: the numbers grow as 4 to the power of the words.
        self.trees_by_start, self.trees_by_end = np.zeros(shape), np.zeros(shape)
        for width in range(2, self.num_words + 1):
            starts = np.arange(self.num_words - width + 1)
            sums, own = self._sums(width, starts), scores[starts, starts + width]
            best = sums.max(axis=0)
            self.by_start[width, starts] = own + best
            restricted = self.by_start[width - 1, starts + 1] if by_papers_rule else best
            self.by_end[width, starts + width] = own + restricted
            if counts_trees:
                trees = self._log_numbers(width, starts)
                trees[sums < best - self.tolerance] = -np.inf
                self.trees_by_start[width, starts] = np.logaddexp.reduce(trees, axis=0)
                restricted = self.trees_by_start[width - 1, starts + 1]
                of_right_part = restricted if by_papers_rule else self.trees_by_start[width, starts]
                self.trees_by_end[width, starts + width] = of_right_part

    def _sums(self, width: int, starts: np.ndarray | int) -> np.ndarray:
        """The best sum of the parts of one or more spans, `[width - 1, ...]`, by the width of the left part less 1."""
        return self._of_parts(width, starts, self.by_start, self.by_end)

    def _log_numbers(self, width: int, starts: np.ndarray | int) -> np.ndarray:
        """The logarithm of the number of best trees of each split, in the same order."""
        return self._of_parts(width, starts, self.trees_by_start, self.trees_by_end)

    def _of_parts(self, width: int, starts: np.ndarray | int, by_start: np.ndarray, by_end: np.ndarray) -> np.ndarray:
        values = by_start[1:width, starts] + by_end[width - 1 : 0 : -1, starts + width]
        if self.by_papers_rule:
            values[0] = by_start[width - 1, starts + 1]
        return values

    def spans(self, ties: str, generator: np.random.Generator | None) -> list[tuple[int, int]]:
        """The constituents of one of the best trees."""
        spans = []
        unsplit = [(0, self.num_words)]
        while unsplit:
            start, end = unsplit.pop()
            if end - start > 1:
                spans.append((start, end))
                split = start + self._left_width(start, end, ties, generator)
                unsplit.append((start, split))
                if self.by_papers_rule and split - start > 1 and end - split > 1:
                    spans.append((split, end))
                    split += 1
                unsplit.append((split, end))
        return spans

    def _left_width(self, start: int, end: int, ties: str, generator: np.random.Generator | None) -> int:
        """The width of the left part in one of the best splits."""
        sums = self._sums(end - start, start)
        best = np.flatnonzero(sums >= sums.max() - self.tolerance)
        if ties == "right" or len(best) == 1:
            chosen = best[0]
        elif ties == "left":
            chosen = best[-1]
        else:
            # A split is as probable as it has trees. So each tree has the same probability.
            log_numbers = self._log_numbers(end - start, start)[best]
            shares = np.exp(log_numbers - log_numbers.max())
            chosen = generator.choice(best, p=shares / shares.sum())
        return 1 + int(chosen)
