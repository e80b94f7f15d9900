"""Accuracy of predicted relations: overall, by number of operators, by relation; and the confusion matrix."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

from .formulas import RELATIONS


@dataclass(frozen=True)
class Accuracy:
    """Accuracy on one group of examples.

    Attributes:
        correct: number of correct predictions.
        total: number of examples.
        accuracy: `correct / total`.
    """

    correct: int
    total: int
    accuracy: float


@dataclass(frozen=True)
class LogicScores:
    """Scores of logical inference.

    Attributes:
        accuracy: fraction of the pairs whose relation was predicted correctly, from 0 to 1.
        num_pairs: number of pairs.
        macro_accuracy: mean of the accuracies in `by_relation`.
        by_relation: accuracy by gold relation, for relations that occur.
        by_operators: accuracy by number of operators.
        confusion: number of pairs by gold relation, then by predicted relation.
    """

    accuracy: float
    num_pairs: int
    macro_accuracy: float
    by_relation: dict[str, Accuracy]
    by_operators: dict[int, Accuracy]
    confusion: dict[str, dict[str, int]]

    def to_dict(self) -> dict:
        """Returns JSON values."""
        content = asdict(self)
        content["by_operators"] = {str(number): scores for number, scores in content["by_operators"].items()}
        return content


def score_logic(predictions: Sequence[str], references: Sequence[str], num_operators: Sequence[int]) -> LogicScores:
    """Compares predicted relations with gold ones.

    Args:
        predictions: relations of `onlstm_hf.logic.formulas.RELATIONS`.
        references: the gold relations.
        num_operators: the number of operators of each pair, see `LogicPair.num_operators`.

    Raises:
        ValueError: if there are no pairs, the lengths differ, or a relation or a number of operators is invalid.
    """
    if not len(predictions) == len(references) == len(num_operators):
        raise ValueError(
            f"there must be as many predictions as references and numbers of operators, not {len(predictions)}, "
            f"{len(references)} and {len(num_operators)}"
        )
    if not len(references):
        raise ValueError("there are no pairs to score")
    for name, relations in (("prediction", predictions), ("reference", references)):
        for position, relation in enumerate(relations):
            if relation not in RELATIONS:
                raise ValueError(f"{name} {position} must be one of {' '.join(RELATIONS)}, not {relation!r}")
    for position, number in enumerate(num_operators):
        if not isinstance(number, Integral) or number < 0:
            raise ValueError(f"number of operators {position} must be an integer from 0 on, not {number!r}")

    counts = Counter(zip(references, predictions, strict=True))
    confusion = {gold: {predicted: counts[gold, predicted] for predicted in RELATIONS} for gold in RELATIONS}
    correct = [predicted == gold for predicted, gold in zip(predictions, references, strict=True)]
    by_relation = group_accuracies(correct, references)
    by_operators = group_accuracies(correct, [int(number) for number in num_operators])
    return LogicScores(
        accuracy=sum(correct) / len(correct),
        num_pairs=len(correct),
        macro_accuracy=sum(group.accuracy for group in by_relation.values()) / len(by_relation),
        by_relation={relation: by_relation[relation] for relation in RELATIONS if relation in by_relation},
        by_operators=dict(sorted(by_operators.items())),
        confusion=confusion,
    )


def group_accuracies(correct: Sequence[bool], groups: Sequence) -> dict[Any, Accuracy]:
    """Returns the accuracy of each group, given for each example its group and whether it is correct."""
    totals = Counter(groups)
    num_correct = Counter(group for group, is_correct in zip(groups, correct, strict=True) if is_correct)
    return {group: Accuracy(num_correct[group], total, num_correct[group] / total) for group, total in totals.items()}
