"""Trees over numbered words: all binary trees, drawn trees, and gold trees with the same spans."""

from functools import cache
from itertools import product

from hypothesis import strategies as st

from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import GoldTree


def numbered(num_words: int) -> list[str]:
    return [f"w{index}" for index in range(num_words)]


@cache
def binary_trees(start: int, end: int) -> list[frozenset[tuple[int, int]]]:
    """Returns the spans of all binary trees over the words from `start` to `end`."""
    if end - start < 2:
        return [frozenset()]
    return [
        left | right | {(start, end)}
        for split in range(start + 1, end)
        for left, right in product(binary_trees(start, split), binary_trees(split, end))
    ]


def drawn_trees(words: list[str]) -> st.SearchStrategy[InducedTree]:
    """Returns a strategy that draws binary trees, and sometimes the flat tree."""
    distances = st.lists(st.integers(0, 5), min_size=len(words), max_size=len(words))
    binary = distances.map(lambda values: tree_from_distances(values, words))
    return st.one_of(binary, binary, st.just(InducedTree.from_spans(words, [])))


def as_gold(tree: InducedTree | GoldTree) -> GoldTree:
    return GoldTree(tree.words, tuple(("X", *span) for span in tree.spans()))
