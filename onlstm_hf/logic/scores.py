"""Accuracy of predicted relations: overall, by number of operators, by relation; and the confusion matrix."""

from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from .formulas import RELATIONS


def score_logic(predictions: Sequence[str], references: Sequence[str], num_operators: Sequence[int]) -> dict[str, Any]:
    """Compares predicted relations with gold ones, given the number of operators of each pair (see `LogicPair`).

    Returns:
        JSON values: `accuracy`, from 0 to 1; `num_pairs`; `macro_accuracy`, the mean over gold relations; accuracies
        `by_relation` (gold) and `by_operators`, see `group_accuracies`; and `confusion`, the number of pairs by gold
        relation, then by predicted relation.

    Raises:
        ValueError: if there are no pairs, the lengths differ, or a relation or a number of operators is invalid.
    """
    if not len(references):
        raise ValueError("there are no pairs to score")
    for name, relations in (("prediction", predictions), ("reference", references)):
        for position, relation in enumerate(relations):
            if relation not in RELATIONS:
                raise ValueError(f"{name} {position} must be one of {' '.join(RELATIONS)}, not {relation!r}")
    if not all(isinstance(number, Integral) and number >= 0 for number in num_operators):
        raise ValueError("numbers of operators must be integers of at least 0")
    counts = Counter(zip(references, predictions, strict=True))
    correct = [predicted == gold for predicted, gold in zip(predictions, references, strict=True)]
    by_relation = group_accuracies(correct, references, RELATIONS.index)
    return {
        "accuracy": sum(correct) / len(correct),
        "num_pairs": len(correct),
        "macro_accuracy": sum(group["accuracy"] for group in by_relation.values()) / len(by_relation),
        "by_relation": by_relation,
        "by_operators": group_accuracies(correct, num_operators, int),
        "confusion": {gold: {predicted: counts[gold, predicted] for predicted in RELATIONS} for gold in RELATIONS},
    }


def group_accuracies(
    correct: Sequence[bool], groups: Sequence[Any], key: Callable[[Any], int]
) -> dict[str, dict[str, float]]:
    """Returns `correct`, `total` and `accuracy` of each group, sorted by `key`, from the group of each example."""
    totals = Counter(groups)
    num_correct = Counter(group for group, is_correct in zip(groups, correct, strict=True) if is_correct)
    return {
        str(group): {
            "correct": num_correct[group],
            "total": totals[group],
            "accuracy": num_correct[group] / totals[group],
        }
        for group in sorted(totals, key=key)
    }
