"""Baseline trees: trivial and random trees over the words, and the best binary tree for a gold tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from .induced_tree import InducedTree, outermost_first, tree_from_splits
from .treebank import GoldTree


def left_branching_tree(words: Sequence[str]) -> InducedTree:
    """`[[[a, b], c], d]`."""
    return InducedTree.from_spans(words, [(0, end) for end in range(2, len(words))])


def right_branching_tree(words: Sequence[str]) -> InducedTree:
    """`[a, [b, [c, d]]]`."""
    return InducedTree.from_spans(words, [(start, len(words)) for start in range(1, len(words) - 1)])


def balanced_tree(words: Sequence[str]) -> InducedTree:
    """Splits each constituent of `n` words after its first `n // 2` words."""
    return tree_from_splits(words, lambda start, end: start + (end - start) // 2)


def random_split_tree(words: Sequence[str], generator: Random) -> InducedTree:
    """Draws a binary tree in which the split of each constituent is uniform, like that of random distances."""
    return tree_from_splits(words, lambda start, end: generator.randrange(start + 1, end))


def uniform_random_tree(words: Sequence[str], generator: Random) -> InducedTree:
    """Draws uniformly from all binary trees over the words.

    In prefix order, a binary tree of `n` words is a sequence of `n - 1` constituents and `n` words. By the cycle lemma
    (Dvoretzky & Motzkin 1947), exactly one rotation of a shuffled sequence is a tree.
    """
    steps = [1] * (len(words) - 1) + [-1] * len(words)
    generator.shuffle(steps)
    heights = np.cumsum(steps)
    start = int(np.argmin(heights)) + 1 if len(steps) else 0  # a tree's sequence is lowest at its end
    spans = []
    next_word = len(words)
    subtrees: list[tuple[int, int]] = []  # from right to left
    for step in reversed(steps[start:] + steps[:start]):
        if step == -1:
            subtrees.append((next_word - 1, next_word))
            next_word -= 1
        else:
            left, right = subtrees.pop(), subtrees.pop()
            subtrees.append((left[0], right[1]))
            spans.append(subtrees[-1])
    return InducedTree.from_spans(words, spans)


def upper_bound_tree(gold: GoldTree) -> InducedTree:
    """Builds the best binary tree: it has all gold constituents, and branches right within flat ones."""
    spans = []
    enclosing: list[tuple[int, int]] = []
    parts = gold.spans() + [(index, index + 1) for index in range(len(gold.words))]
    for start, end in sorted(parts, key=outermost_first):
        while enclosing and enclosing[-1][1] <= start:
            enclosing.pop()
        if enclosing:
            spans.append((start, enclosing[-1][1]))
        enclosing.append((start, end))
    return InducedTree.from_spans(gold.words, spans)


BASELINES: dict[str, Callable[[GoldTree, Random], InducedTree]] = {
    "left branching": lambda gold, generator: left_branching_tree(gold.words),
    "right branching": lambda gold, generator: right_branching_tree(gold.words),
    "balanced": lambda gold, generator: balanced_tree(gold.words),
    "random (uniform trees)": lambda gold, generator: uniform_random_tree(gold.words, generator),
    "random (uniform splits)": lambda gold, generator: random_split_tree(gold.words, generator),
    "upper bound": lambda gold, generator: upper_bound_tree(gold),
}


def baseline_trees(name: str, gold: Sequence[GoldTree], seed: int = 0) -> list[InducedTree]:
    """Returns a baseline's tree of each sentence; `name` is a key of `BASELINES`."""
    if name not in BASELINES:
        raise ValueError(f"unknown baseline {name!r}; there are {', '.join(map(repr, BASELINES))}")
    generator = Random(seed)
    return [BASELINES[name](tree, generator) for tree in gold]
