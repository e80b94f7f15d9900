"""The papers' unsupervised parsing task: the words of a treebank parsed, and scored against its trees."""

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..trees.treebank import GoldTree
from .parsing_scores import ParsingScores, score_parses


def parse_treebank(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    treebank: Sequence[GoldTree],
    **parse_options,
) -> ParsingScores:
    """Parses the words of gold trees and scores the result: the papers' unsupervised parsing task.

    Args:
        model: a model with `parse`.
        tokenizer: its tokenizer.
        treebank: gold trees, their words as the model should see them (`read_treebank` applies the protocol).
        parse_options: for `model.parse`, such as `layer` and `branching_bias`.
    """
    trees = model.parse([list(tree.words) for tree in treebank], tokenizer, **parse_options)
    return score_parses(trees, treebank)
