"""Agreement between parsers, without gold trees."""

from collections.abc import Sequence

import numpy as np

from ..trees.induced_tree import InducedTree
from ..utils.iteration import progress_bar
from .parsing_scores import authors_rule


def tree_agreement(parsers: Sequence[Sequence[InducedTree]]) -> np.ndarray:
    """Returns the sentence F1, by the papers' rule, between the trees of each pair of parsers for the same sentences.

    It is `[num_parsers, num_parsers]`, from 0 to 1; rows are predicted, columns gold. Binary trees make it symmetric.

    Raises:
        ValueError: if there are no sentences, or they differ.
    """
    if not parsers or not parsers[0]:
        raise ValueError("give the trees of at least one sentence")
    f1 = np.zeros((len(parsers), len(parsers)))
    for index, trees in enumerate(progress_bar(zip(*parsers, strict=True), total=len(parsers[0]), unit="sentence")):
        words = trees[0].words
        if any(tree.words != words for tree in trees):
            raise ValueError(f"the trees of sentence {index} have different words")
        spans = [set(tree.spans()) - {(0, len(words))} for tree in trees]
        overlap = np.array([[len(predicted & gold) for gold in spans] for predicted in spans])
        num_spans = overlap.diagonal()
        f1 += authors_rule(overlap, num_spans[:, None], num_spans)[2]
    return f1 / len(parsers[0])


def mean_agreement(agreement: np.ndarray) -> np.ndarray:
    """Returns each parser's mean agreement with all others, from the matrix of `tree_agreement`."""
    return (agreement.sum(axis=1) - agreement.diagonal()) / (len(agreement) - 1)
