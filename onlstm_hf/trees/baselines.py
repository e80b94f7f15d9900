"""Baseline trees: trivial and random trees over the words, and the best binary tree for a gold tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from .induced_tree import InducedTree
from .treebank import GoldTree


def left_branching_tree(words: Sequence[str]) -> InducedTree:
    """`[[[a, b], c], d]`."""
    return InducedTree.from_spans(words, [(0, end) for end in range(2, len(words))])


def right_branching_tree(words: Sequence[str]) -> InducedTree:
    """`[a, [b, [c, d]]]`."""
    return InducedTree.from_spans(words, [(start, len(words)) for start in range(1, len(words) - 1)])


def balanced_tree(words: Sequence[str]) -> InducedTree:
    """Splits each constituent of `n` words after its first `n // 2` words."""
    return _tree_from_splits(words, lambda start, end: start + (end - start) // 2)


def random_split_tree(words: Sequence[str], generator: Random) -> InducedTree:
    """Draws a binary tree in which the split of each constituent is uniform.

    Two other methods have the same distribution: random syntactic distances without branching bias, and bottom-up
    merging of random neighbours. These trees are less deep than uniformly drawn ones.
    """
    return _tree_from_splits(words, lambda start, end: generator.randrange(start + 1, end))


def uniform_random_tree(words: Sequence[str], generator: Random) -> InducedTree:
    """Draws uniformly from all binary trees over the words.

    In prefix order, a binary tree of `n` words is a sequence of `n - 1` constituents and `n` words. By the cycle lemma
    (Dvoretzky & Motzkin 1947), exactly one rotation of such a sequence is a tree. So a shuffled sequence gives each
    tree with the same probability.
    """
    steps = [1] * (len(words) - 1) + [-1] * len(words)
    generator.shuffle(steps)
    heights = np.cumsum(steps)
    start = int(np.argmin(heights)) + 1 if len(steps) else 0  # a tree's sequence is lowest at its end
    spans = []
    num_words_read = 0
    open_starts: list[int] = []
    num_children_missing: list[int] = []
    for step in steps[start:] + steps[:start]:
        if step == 1:
            open_starts.append(num_words_read)
            num_children_missing.append(2)
            continue
        num_words_read += 1
        while num_children_missing:
            num_children_missing[-1] -= 1
            if num_children_missing[-1]:
                break
            num_children_missing.pop()
            spans.append((open_starts.pop(), num_words_read))
    return InducedTree.from_spans(words, spans)


def upper_bound_tree(gold: GoldTree) -> InducedTree:
    """Builds the best binary tree: it has all gold constituents, and branches right within flat ones."""
    child_starts: dict[tuple[int, int], list[int]] = {}
    open_spans: list[tuple[int, int]] = []
    units = gold.spans() + [(index, index + 1) for index in range(len(gold.words))]
    for span in sorted(units, key=lambda unit: (unit[0], -unit[1])):
        while open_spans and open_spans[-1][1] <= span[0]:
            open_spans.pop()
        if open_spans:
            child_starts[open_spans[-1]].append(span[0])
        if span[1] - span[0] > 1:
            open_spans.append(span)
            child_starts[span] = []
    spans = [(start, end) for (_, end), starts in child_starts.items() for start in starts[:-1]]
    return InducedTree.from_spans(gold.words, spans)


def _tree_from_splits(words: Sequence[str], choose_split: Callable[[int, int], int]) -> InducedTree:
    spans = []
    unsplit = [(0, len(words))]
    while unsplit:
        start, end = unsplit.pop()
        if end - start > 1:
            spans.append((start, end))
            split = choose_split(start, end)
            unsplit += [(start, split), (split, end)]
    return InducedTree.from_spans(words, spans)


BASELINES: dict[str, Callable[[GoldTree, Random], InducedTree]] = {
    "left branching": lambda gold, generator: left_branching_tree(gold.words),
    "right branching": lambda gold, generator: right_branching_tree(gold.words),
    "balanced": lambda gold, generator: balanced_tree(gold.words),
    "random (uniform trees)": lambda gold, generator: uniform_random_tree(gold.words, generator),
    "random (uniform splits)": lambda gold, generator: random_split_tree(gold.words, generator),
    "upper bound": lambda gold, generator: upper_bound_tree(gold),
}


def baseline_trees(name: str, gold: Sequence[GoldTree], seed: int = 0) -> list[InducedTree]:
    """Returns a baseline's tree of each sentence; `name` is a key of `BASELINES`.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in BASELINES:
        raise ValueError(f"unknown baseline {name!r}; there are {', '.join(map(repr, BASELINES))}")
    generator = Random(seed)
    return [BASELINES[name](tree, generator) for tree in gold]
