"""Scores of ListOps: accuracy by depth and by length, and how well induced trees are those of the expressions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..logic.listops import VALUES, ListOpsExpression
from ..logic.scores import Accuracy, group_accuracies
from ..trees.induced_tree import InducedTree
from .parsing_scores import score_baselines, score_parses

# Upper bounds of the length groups; the last group has no bound.
LENGTH_LIMITS = (10, 20, 40, 80, 160, 320)


@dataclass(frozen=True)
class ListOpsScores:
    """Scores of ListOps.

    Attributes:
        accuracy: share of the expressions whose value was predicted right, from 0 to 1.
        num_expressions: how many there are.
        by_depth: accuracy by the depth of the lists.
        by_length: accuracy by the number of tokens, in groups such as `"11-20"` and `"321-"`.
    """

    accuracy: float
    num_expressions: int
    by_depth: dict[int, Accuracy]
    by_length: dict[str, Accuracy]

    def to_dict(self) -> dict:
        """As plain dictionaries with strings as keys, for JSON."""
        content = asdict(self)
        content["by_depth"] = {str(depth): scores for depth, scores in content["by_depth"].items()}
        return content


def score_listops(predictions: Sequence[str], expressions: Sequence[ListOpsExpression]) -> ListOpsScores:
    """Compares predicted values, which are digits, with those of as many expressions.

    Raises:
        ValueError: if there are no expressions, the lengths differ, or a prediction is no digit.
    """
    if len(predictions) != len(expressions) or not expressions:
        raise ValueError(
            f"there must be as many predictions as expressions, one at least, not {len(predictions)} and "
            f"{len(expressions)}"
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
        trees: of the tokens of the expressions.
        expressions: as many.

    Returns:
        For the `"induced"` trees and those of each baseline `f1`, the sentence F1 (see `ParsingScores`) by lists and
        their parts from the left, which are the binary trees of the authors' files, and `list_recall`, the share of
        the lists inside others that the trees have; both from 0 to 1.

    Raises:
        ValueError: if trees and expressions do not fit together.
    """
    scores = {}
    for figure, binary in (("sentence_f1", True), ("corpus_recall", False)):
        gold = [expression.gold_tree(binary) for expression in expressions]
        by_system = {"induced": score_parses(trees, gold, num_resamples=0), **score_baselines(gold, num_resamples=0)}
        scores[figure] = {system: getattr(found, figure) for system, found in by_system.items()}
    return {
        system: {"f1": f1, "list_recall": scores["corpus_recall"][system]}
        for system, f1 in scores["sentence_f1"].items()
    }
