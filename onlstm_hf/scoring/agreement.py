"""Agreement of several parsers, which needs no gold trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..trees.induced_tree import InducedTree
from ..utils.iteration import progress_bar
from .parsing_scores import authors_rule


def tree_agreement(parsers: Sequence[Sequence[InducedTree]]) -> np.ndarray:
    """Sentence F1, by the papers' rule, of the trees of each parser against those of each other one.

    The F1 of two binary trees is the same whichever of them is taken for gold.

    Args:
        parsers: for each parser its trees, of the same sentences in the same order.

    Returns:
        `[num_parsers, num_parsers]`, fractions; rows are predicted, columns gold.

    Raises:
        ValueError: if there is no parser or no sentence, or the sentences differ.
    """
    if not parsers or not parsers[0]:
        raise ValueError("there is nothing to compare: give the trees of at least one sentence")
    f1 = np.zeros((len(parsers), len(parsers)))
    for index, trees in enumerate(progress_bar(zip(*parsers, strict=True), total=len(parsers[0]), unit="sentence")):
        words = trees[0].words
        if any(tree.words != words for tree in trees):
            raise ValueError(f"sentence {index} has other words in one of the parsers' trees")
        # One column a span; the whole sentence, which every tree has, is left out.
        columns: dict[tuple[int, int], int] = {}
        members = [
            [columns.setdefault(span, len(columns)) for span in set(tree.spans()) - {(0, len(words))}]
            for tree in trees
        ]
        has_span = np.zeros((len(trees), len(columns)))
        for row, member in enumerate(members):
            has_span[row, member] = 1
        num_spans = has_span.sum(axis=1)
        overlap = has_span @ has_span.T
        f1 += authors_rule(overlap, *np.broadcast_arrays(num_spans[:, None], num_spans[None, :]))[2]
    return f1 / len(parsers[0])


def mean_agreement(agreement: np.ndarray) -> np.ndarray:
    """The mean agreement of each of several parsers with all others, from the matrix of `tree_agreement`."""
    return (agreement.sum(axis=1) - agreement.diagonal()) / (len(agreement) - 1)
