"""Scores of ListOps: accuracy by depth and by length, and induced trees against the expressions' structure."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ..logic.listops import VALUES, ListOpsExpression
from ..logic.scores import group_accuracies
from ..trees.induced_tree import InducedTree
from ..trees.treebank import GoldTree
from .parsing_scores import ParsingScores, score_baselines, score_parses

# Upper bounds of all length groups but the last.
LENGTH_LIMITS = (10, 20, 40, 80, 160, 320)


def score_listops(predictions: Sequence[str], expressions: Sequence[ListOpsExpression]) -> dict[str, Any]:
    """Compares predicted values, which are digits, with the expressions' values.

    Returns:
        JSON values: `accuracy`, from 0 to 1; `num_expressions`; and the accuracies `by_depth` of nesting and
        `by_length`, the number of tokens in groups such as `"11-20"` and `"321-"`, see `group_accuracies`.
    """
    if not predictions or not set(predictions) <= set(VALUES):
        raise ValueError("give one prediction per expression, each a digit")
    values = [str(expression.value) for expression in expressions]
    correct = [predicted == value for predicted, value in zip(predictions, values, strict=True)]
    lengths = [_length_group(len(expression.tokens)) for expression in expressions]
    return {
        "accuracy": sum(correct) / len(correct),
        "num_expressions": len(correct),
        "by_depth": group_accuracies(correct, [expression.depth for expression in expressions], int),
        "by_length": group_accuracies(correct, lengths, lambda group: int(group.split("-")[0])),
    }


def _length_group(length: int) -> str:
    index = bisect_left(LENGTH_LIMITS, length)
    return f"{(0, *LENGTH_LIMITS)[index] + 1}-{(*LENGTH_LIMITS, '')[index]}"


def score_listops_trees(
    trees: Sequence[InducedTree], expressions: Sequence[ListOpsExpression]
) -> dict[str, dict[str, float]]:
    """Scores induced trees, over the tokens of expressions, and baselines against the expressions' structure.

    Returns:
        For `"induced"` and each baseline: `f1`, the sentence F1 (see `ParsingScores`) against the binary trees of the
        authors' files; and `list_recall`, the recall of lists inside other lists. Both are from 0 to 1.

    Raises:
        ValueError: if trees and expressions do not match.
    """

    def by_system(gold: list[GoldTree]) -> dict[str, ParsingScores]:
        return {"induced": score_parses(trees, gold, num_resamples=0), **score_baselines(gold, num_resamples=0)}

    binary = by_system([expression.gold_tree() for expression in expressions])
    lists = by_system([expression.gold_tree(binary=False) for expression in expressions])
    return {
        system: {"f1": scores.sentence_f1, "list_recall": lists[system].corpus_recall}
        for system, scores in binary.items()
    }
