"""Scores of ListOps: accuracy by depth and by length, and induced trees against the expressions' structure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..logic.listops import VALUES, ListOpsExpression
from ..logic.scores import Accuracy, group_accuracies
from ..trees.induced_tree import InducedTree
from .parsing_scores import score_baselines, score_parses

# Upper bounds of all length groups but the last.
LENGTH_LIMITS = (10, 20, 40, 80, 160, 320)


@dataclass(frozen=True)
class ListOpsScores:
    """Scores of ListOps.

    Attributes:
        accuracy: fraction of the expressions whose value was predicted correctly, from 0 to 1.
        num_expressions: number of expressions.
        by_depth: accuracy by nesting depth.
        by_length: accuracy by the number of tokens, in groups such as `"11-20"` and `"321-"`.
    """

    accuracy: float
    num_expressions: int
    by_depth: dict[int, Accuracy]
    by_length: dict[str, Accuracy]

    def to_dict(self) -> dict:
        """Returns JSON values."""
        content = asdict(self)
        content["by_depth"] = {str(depth): scores for depth, scores in content["by_depth"].items()}
        return content


def score_listops(predictions: Sequence[str], expressions: Sequence[ListOpsExpression]) -> ListOpsScores:
    """Compares predicted values, which are digits, with the expressions' values.

    Raises:
        ValueError: if there are no expressions, the lengths differ, or a prediction is no digit.
    """
    if len(predictions) != len(expressions) or not expressions:
        raise ValueError(
            f"expected one prediction per expression, and at least one, got {len(predictions)} predictions for "
            f"{len(expressions)} expressions"
        )
    for position, value in enumerate(predictions):
        if value not in VALUES:
            raise ValueError(f"prediction {position} must be a digit, not {value!r}")
    correct = [
        predicted == str(expression.value) for predicted, expression in zip(predictions, expressions, strict=True)
    ]
    depths = [expression.depth for expression in expressions]
    lengths = [len(expression.tokens) for expression in expressions]
    by_group = group_accuracies(correct, [sum(length > limit for limit in LENGTH_LIMITS) for length in lengths])
    return ListOpsScores(
        accuracy=sum(correct) / len(correct),
        num_expressions=len(correct),
        by_depth=dict(sorted(group_accuracies(correct, depths).items())),
        by_length={_group_name(group): by_group[group] for group in sorted(by_group)},
    )


def _group_name(group: int) -> str:
    first = 1 if group == 0 else LENGTH_LIMITS[group - 1] + 1
    return f"{first}-{LENGTH_LIMITS[group] if group < len(LENGTH_LIMITS) else ''}"


def score_listops_trees(
    trees: Sequence[InducedTree], expressions: Sequence[ListOpsExpression]
) -> dict[str, dict[str, float]]:
    """Scores induced trees and baselines against the structure of expressions.

    Args:
        trees: one tree per expression, over its tokens.
        expressions: the expressions.

    Returns:
        For `"induced"` and each baseline: `f1`, the sentence F1 (see `ParsingScores`) against the binary trees of the
        authors' files; and `list_recall`, the recall of lists inside other lists. Both are from 0 to 1.

    Raises:
        ValueError: if trees and expressions do not match.
    """
    scores = {}
    for figure, binary in (("sentence_f1", True), ("corpus_recall", False)):
        gold = [expression.gold_tree(binary) for expression in expressions]
        by_system = {"induced": score_parses(trees, gold, num_resamples=0), **score_baselines(gold, num_resamples=0)}
        scores[figure] = {system: getattr(result, figure) for system, result in by_system.items()}
    return {
        system: {"f1": f1, "list_recall": scores["corpus_recall"][system]}
        for system, f1 in scores["sentence_f1"].items()
    }
