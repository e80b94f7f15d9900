"""Accuracy on minimal pairs by condition and group, as a metric of the `evaluate` library."""

from collections.abc import Sequence
from typing import NamedTuple

import datasets
import evaluate
import numpy as np

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
Examples:
    >>> import evaluate
    >>> minimal_pairs = evaluate.load("eval/minimal_pairs")
    >>> log_probabilities = [[-20.3, -22.4], [-18.0, -17.5], [-30.2, -31.0], [-25.3, -25.3]]
    >>> scores = minimal_pairs.compute(
    ...     predictions=log_probabilities, conditions=["singular", "plural", "singular", "plural"]
    ... )
    >>> scores["accuracy"], scores["num_ties"], scores["by_condition"]["singular"]["accuracy"]
    (0.5, 1, 1.0)
"""

_CITATION = """\
@inproceedings{marvin2018targeted,
  title = {Targeted Syntactic Evaluation of Language Models},
  author = {Marvin, Rebecca and Linzen, Tal},
  booktitle = {Proceedings of the 2018 Conference on Empirical Methods in Natural Language Processing},
  year = {2018},
  pages = {1192--1202},
  url = {https://aclanthology.org/D18-1151}
}
"""

# Positions of the compared sentences by number of sentences; the first should be more probable.
_WHOLE = "grammatical vs. ungrammatical"
_COMPARISONS = {
    2: {_WHOLE: (0, 1)},
    3: {"grammatical vs. intrusive": (0, 1), "intrusive vs. ungrammatical": (1, 2), _WHOLE: (0, 2)},
}


class _Comparison(NamedTuple):
    """Log probabilities of two sentences, and whether they differ in an unknown word."""

    better: float
    worse: float
    out_of_vocabulary: bool


class MinimalPairs(evaluate.Metric):
    """Accuracy on minimal pairs from log probabilities."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
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
        knows_vocabulary = out_of_vocabulary is not None
        if not knows_vocabulary:
            out_of_vocabulary = [False] * len(predictions)

        items = [
            _compare(position, log_probabilities, flags)
            for position, (log_probabilities, flags) in enumerate(zip(predictions, out_of_vocabulary, strict=True))
        ]
        scores = _score([item[_WHOLE] for item in items], knows_vocabulary)
        for name, names in {"by_condition": conditions, "by_group": groups}.items():
            if names is not None:
                scores[name] = {title: _score(pairs, knows_vocabulary) for title, pairs in _pool(items, names).items()}
        return scores


def _compare(
    position: int, log_probabilities: Sequence[float], flags: bool | Sequence[bool]
) -> dict[str, _Comparison]:
    """Returns the comparisons of one item, by name."""
    if len(log_probabilities) not in _COMPARISONS:
        raise ValueError(
            f"item {position} has {len(log_probabilities)} log probabilities, expected [grammatical, ungrammatical] "
            "or [grammatical, intrusive, ungrammatical]"
        )
    for value in log_probabilities:
        if not value <= 1e-6:
            raise ValueError(f"item {position}: {value} is not a log probability, which is at most 0")
    comparisons = _COMPARISONS[len(log_probabilities)]
    flags = list(flags) if hasattr(flags, "__len__") else [flags] * len(comparisons)
    if len(flags) != len(comparisons):
        raise ValueError(
            f"out_of_vocabulary must be a bool, or a list of {len(comparisons)}, "
            f"but that of item {position} is {flags}"
        )
    return {
        name: _Comparison(log_probabilities[better], log_probabilities[worse], bool(flag))
        for (name, (better, worse)), flag in zip(comparisons.items(), flags, strict=True)
    }


def _pool(items: list[dict[str, _Comparison]], names: Sequence[str]) -> dict[str, list[_Comparison]]:
    """Collects the comparisons of all items with the same name; those of three sentences are separate."""
    pools: dict[str, list[_Comparison]] = {}
    for name, item in zip(names, items, strict=True):
        for comparison, pair in item.items():
            title = name if len(item) == 1 else f"{name} ({comparison})"
            pools.setdefault(title, []).append(pair)
    return pools


def _score(pairs: list[_Comparison], knows_vocabulary: bool) -> dict[str, float | int | None]:
    """Returns accuracy and counts; a tie is not correct."""
    correct = np.array([pair.better > pair.worse for pair in pairs])
    scores = {
        "accuracy": float(correct.mean()),
        "num_pairs": len(pairs),
        "num_correct": int(correct.sum()),
        "num_ties": sum(pair.better == pair.worse for pair in pairs),
    }
    if knows_vocabulary:
        in_vocabulary = ~np.array([pair.out_of_vocabulary for pair in pairs])
        scores["num_out_of_vocabulary"] = int((~in_vocabulary).sum())
        scores["in_vocabulary_accuracy"] = float(correct[in_vocabulary].mean()) if in_vocabulary.any() else None
    return scores
