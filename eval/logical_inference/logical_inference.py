"""Accuracy of logical inference, as a metric of the `evaluate` library."""

import datasets
import evaluate

from onlstm_hf.logic.scores import score_logic

_DESCRIPTION = """\
Accuracy of predicting the relation between two formulas of propositional logic: overall, by number of operators and by
relation, with the macro average over the seven relations and a confusion matrix. The task and the relations are those
of Bowman, Manning & Potts (2015). The ON-LSTM paper reports the accuracy by number of operators.
"""

_INPUTS_DESCRIPTION = """
Args:
    predictions: for each pair the predicted relation: `<`, `>`, `=`, `^`, `|`, `#` or `v`.
    references: for each pair the gold relation.
    num_operators: for each pair the number of `not`, `and` and `or` in the formula that has more of them.
Returns:
    `accuracy`, `num_pairs`, `macro_accuracy` (the mean of the relations' accuracies), `by_relation` and `by_operators`
    (each `correct`, `total` and `accuracy`), and `confusion`: how often each relation was predicted, by gold relation.
"""


class LogicalInference(evaluate.Metric):
    """Metric interface of `onlstm_hf.logic.scores`."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Bowman, Manning & Potts (2015); the card has the BibTeX entry",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features(
                {
                    "predictions": datasets.Value("string"),
                    "references": datasets.Value("string"),
                    "num_operators": datasets.Value("int64"),
                }
            ),
            reference_urls=["https://arxiv.org/abs/1506.04834", "https://openreview.net/forum?id=B1l6qiR5F7"],
        )

    def _compute(self, predictions: list[str], references: list[str], num_operators: list[int]) -> dict:
        return score_logic(predictions, references, num_operators)
