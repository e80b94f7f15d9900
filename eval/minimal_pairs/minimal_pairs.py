"""Accuracy on minimal pairs by condition and group, as a metric of the `evaluate` library."""

import datasets
import evaluate
import pandas as pd

_DESCRIPTION = """\
Accuracy of language models on minimal pairs: how often the grammatical sentence has the higher log probability, by
condition, by group of conditions and overall. The metric also counts ties and pairs that differ in a word outside the
model's vocabulary. Items of three sentences (grammatical, intrusive, ungrammatical), such as the negative polarity
items of Marvin & Linzen (2018), have three comparisons.
"""

_INPUTS_DESCRIPTION = """
Args:
    predictions: for each item the log probabilities of its sentences: `[grammatical, ungrammatical]`, or
        `[grammatical, intrusive, ungrammatical]`.
    conditions: for each item the name of its condition; optional.
    groups: for each item the name of its group, which may have several conditions; optional.
    out_of_vocabulary: for each item whether its sentences differ in a word outside the vocabulary: a `bool`, or
        for three sentences a list of three in the order grammatical vs. intrusive, intrusive vs. ungrammatical,
        grammatical vs. ungrammatical; optional.
Returns:
    `accuracy`, `num_pairs`, `num_correct`, `num_ties` over all items (grammatical vs. ungrammatical sentence), and the
    same in `by_condition` and `by_group` if these names are given. Items of three sentences have three entries there,
    such as `"name (grammatical vs. intrusive)"`. With `out_of_vocabulary` also `num_out_of_vocabulary` and
    `in_vocabulary_accuracy`, the accuracy on the other pairs. A tie is not correct.
"""


# Positions of the compared sentences by number of sentences; the first should be more probable.
_WHOLE = "grammatical vs. ungrammatical"
_COMPARISONS = {
    2: {_WHOLE: (0, 1)},
    3: {"grammatical vs. intrusive": (0, 1), "intrusive vs. ungrammatical": (1, 2), _WHOLE: (0, 2)},
}


class MinimalPairs(evaluate.Metric):
    """Accuracy on minimal pairs from log probabilities."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Marvin & Linzen (2018); the card has the BibTeX entry",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": datasets.Sequence(datasets.Value("float64"))}),
            reference_urls=["https://aclanthology.org/D18-1151", "https://aclanthology.org/2020.tacl-1.25"],
        )

    def _compute(self, predictions, conditions=None, groups=None, out_of_vocabulary=None):
        if not len(predictions):
            raise ValueError("nothing to score: predictions are empty")
        columns = {"conditions": conditions, "groups": groups, "out_of_vocabulary": out_of_vocabulary}
        for name, column in columns.items():
            if column is not None and len(column) != len(predictions):
                raise ValueError(
                    f"{name} must have one entry per item: got {len(column)} for {len(predictions)} items"
                )
        flags = [None] * len(predictions) if out_of_vocabulary is None else out_of_vocabulary
        pairs = pd.DataFrame(
            pair for item in enumerate(zip(predictions, flags, strict=True)) for pair in _compare(*item)
        )
        scores = _score(pairs[pairs["comparison"] == _WHOLE])
        for name, names in {"by_condition": conditions, "by_group": groups}.items():
            if names is not None:
                titles = pairs["item"].map(list(names).__getitem__) + pairs["title"]
                scores[name] = {title: _score(rows) for title, rows in pairs.groupby(titles, sort=False)}
        return scores


def _compare(item: int, contents: tuple) -> list[dict]:
    """Returns the comparisons of one item, given its log probabilities and whether its sentences are unknown."""
    log_probabilities, flags = contents
    if len(log_probabilities) not in _COMPARISONS:
        raise ValueError(
            f"item {item} has {len(log_probabilities)} log probabilities, expected [grammatical, ungrammatical] "
            "or [grammatical, intrusive, ungrammatical]"
        )
    for value in log_probabilities:
        if not value <= 1e-6:
            raise ValueError(f"item {item}: {value} is not a log probability, which is at most 0")
    comparisons = _COMPARISONS[len(log_probabilities)]
    flags = list(flags) if hasattr(flags, "__len__") else [flags] * len(comparisons)
    if len(flags) != len(comparisons):
        raise ValueError(
            f"out_of_vocabulary must be a bool, or a list of {len(comparisons)}, but that of item {item} is {flags}"
        )
    return [
        {
            "item": item,
            "comparison": comparison,
            "title": "" if len(comparisons) == 1 else f" ({comparison})",  # after the name of the condition or group
            "is_correct": log_probabilities[better] > log_probabilities[worse],
            "is_tie": log_probabilities[better] == log_probabilities[worse],
            "is_unknown": flag,
        }
        for (comparison, (better, worse)), flag in zip(comparisons.items(), flags, strict=True)
    ]


def _score(pairs: pd.DataFrame) -> dict[str, float | int | None]:
    """Returns accuracy and counts; a tie is not correct."""
    scores = {
        "accuracy": float(pairs["is_correct"].mean()),
        "num_pairs": len(pairs),
        "num_correct": int(pairs["is_correct"].sum()),
        "num_ties": int(pairs["is_tie"].sum()),
    }
    if pairs["is_unknown"].notna().all():
        known = pairs[~pairs["is_unknown"].astype(bool)]
        scores["num_out_of_vocabulary"] = len(pairs) - len(known)
        scores["in_vocabulary_accuracy"] = float(known["is_correct"].mean()) if len(known) else None
    return scores
