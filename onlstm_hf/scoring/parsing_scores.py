"""Scores of unsupervised constituency parsing, from 0 to 1.

A constituent is a span of at least two words. Precision and recall ignore labels.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest

import numpy as np

from ..trees.baselines import BASELINES, baseline_trees
from ..trees.brackets import unescape_word
from ..trees.induced_tree import InducedTree
from ..trees.treebank import GoldTree

AUTHORS_EPSILON = 1e-8
LENGTH_LIMITS = (10, 20, 30, 40)


@dataclass(frozen=True)
class LabelRecall:
    """Recall of the gold constituents with one label, without whole sentences."""

    correct: int
    total: int

    @property
    def recall(self) -> float:
        return self.correct / self.total


@dataclass(frozen=True)
class LengthScore:
    """Mean sentence F1 of the sentences of `min_words` to `max_words` words (`None`: no limit)."""

    min_words: int
    max_words: int | None
    num_sentences: int
    sentence_f1: float


@dataclass(frozen=True)
class ParsingScores:
    """Scores of predicted against gold trees.

    Attributes:
        sentence_precision, sentence_recall, sentence_f1: the figures of the ON-LSTM and PRPN papers, by the rule of
            the authors' code: means over sentences, without the whole sentence as a constituent. Precision, recall and
            F1 of a sentence have 1e-8 added to their denominators. A sentence without gold constituents has recall 1,
            and precision 1 if nothing was predicted, else precision and F1 0.
        sentence_f1_interval, corpus_f1_interval: bootstrap confidence intervals over sentences; `None` without
            resamples.
        num_plain_sentences: number of sentences with a gold constituent besides the whole sentence.
        plain_sentence_precision, plain_sentence_recall, plain_sentence_f1: means over these sentences, without an
            epsilon; `None` if there are none.
        corpus_precision, corpus_recall, corpus_f1: from the pooled counts of all sentences, without whole sentences.
        evalb_precision, evalb_recall, evalb_f1: the output of EVALB for unlabelled trees without unary brackets: from
            pooled counts with whole sentences, over sentences of two words or more.
        label_recall: recall of the gold constituents by label, sorted by label, without whole sentences.
        average_depth: number of predicted constituents around a word, averaged over words, then over sentences.
        by_length: sentence F1 by sentence length; empty groups are omitted.
        f1_of_sentences: `[num_sentences]`, the F1 of each sentence by the authors' rule; ignored in comparisons and
            dictionaries.
    """

    num_sentences: int
    sentence_precision: float
    sentence_recall: float
    sentence_f1: float
    sentence_f1_interval: list[float] | None
    num_plain_sentences: int
    plain_sentence_precision: float | None
    plain_sentence_recall: float | None
    plain_sentence_f1: float | None
    corpus_precision: float
    corpus_recall: float
    corpus_f1: float
    corpus_f1_interval: list[float] | None
    evalb_precision: float
    evalb_recall: float
    evalb_f1: float
    label_recall: dict[str, LabelRecall]
    average_depth: float
    by_length: list[LengthScore]
    f1_of_sentences: np.ndarray = field(repr=False, compare=False)

    def to_dict(self) -> dict:
        """Returns JSON values, with the `recall` of each label."""
        scores = asdict(self)
        del scores["f1_of_sentences"]
        for label, counts in self.label_recall.items():
            scores["label_recall"][label]["recall"] = counts.recall
        return scores


def score_parses(
    predicted: Sequence[InducedTree | Sequence | str],
    gold: Sequence[GoldTree],
    *,
    length_limits: Sequence[int] = LENGTH_LIMITS,
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> ParsingScores:
    """Scores predicted trees against gold trees of the same sentences.

    Args:
        predicted: trees (any object with `words` and `spans()`) or nested lists of words.
        gold: the gold trees, in the same order.
        length_limits: increasing upper bounds of the groups of `by_length`; the last group has no bound.
        num_resamples: bootstrap samples for the confidence intervals; 0 leaves them out.
        confidence: the confidence level of the intervals, such as 0.95.
        seed: the seed of the bootstrap.

    Raises:
        ValueError: if there is no sentence, or the numbers of trees or the words of a sentence differ.
    """
    predicted, gold = list(predicted), list(gold)
    if len(predicted) != len(gold) or not gold:
        raise ValueError(f"there must be trees, one predicted per gold tree, not {len(predicted)} for {len(gold)}")
    if sorted(set(length_limits)) != list(length_limits):
        raise ValueError(f"length_limits must increase, got {list(length_limits)}")
    counts = np.zeros((len(gold), 3), dtype=np.int64)
    depths = []
    is_found: defaultdict[str, list[bool]] = defaultdict(list)  # by label
    for index, (predicted_tree, gold_tree) in enumerate(zip(predicted, gold, strict=True)):
        if not isinstance(gold_tree, GoldTree):
            raise ValueError(f"gold tree {index} is a {type(gold_tree).__name__}; read it with GoldTree.from_bracket")
        if not hasattr(predicted_tree, "spans"):
            predicted_tree = InducedTree.from_nested(predicted_tree)
        _check_same_words(index, predicted_tree.words, gold_tree.words)
        predicted_spans, gold_spans = set(predicted_tree.spans()), set(gold_tree.spans())
        counts[index] = len(predicted_spans & gold_spans), len(predicted_spans), len(gold_spans)
        if gold_tree.words:
            depths.append(sum(end - start for start, end in predicted_spans) / len(gold_tree.words))
        for label, start, end in set(gold_tree.constituents):
            if end - start < len(gold_tree.words):
                is_found[label].append((start, end) in predicted_spans)

    lengths = np.array([len(tree.words) for tree in gold])
    inner_counts = (counts - (lengths > 1)[:, None]).T  # without the whole sentence
    precision, recall, f1 = authors_rule(*inner_counts)
    has_gold = inner_counts[2] > 0
    plain = [float(rates.mean()) for rates in _rates(*inner_counts[:, has_gold])] if has_gold.any() else [None] * 3
    corpus = [float(rate) for rate in _rates(*inner_counts.sum(axis=1))]
    evalb = [float(rate) for rate in _rates(*counts.sum(axis=0))]

    def interval(statistic: Callable[[np.ndarray], float]) -> list[float] | None:
        return _bootstrap_interval(statistic, len(gold), num_resamples, confidence, seed) if num_resamples else None

    return ParsingScores(
        num_sentences=len(gold),
        sentence_precision=float(precision.mean()),
        sentence_recall=float(recall.mean()),
        sentence_f1=float(f1.mean()),
        sentence_f1_interval=interval(lambda sample: f1[sample].mean()),
        num_plain_sentences=int(has_gold.sum()),
        plain_sentence_precision=plain[0],
        plain_sentence_recall=plain[1],
        plain_sentence_f1=plain[2],
        corpus_precision=corpus[0],
        corpus_recall=corpus[1],
        corpus_f1=corpus[2],
        corpus_f1_interval=interval(lambda sample: _rates(*inner_counts[:, sample].sum(axis=1))[2]),
        evalb_precision=evalb[0],
        evalb_recall=evalb[1],
        evalb_f1=evalb[2],
        label_recall={label: LabelRecall(sum(found), len(found)) for label, found in sorted(is_found.items())},
        average_depth=float(np.mean(depths)) if depths else 0.0,
        by_length=_scores_by_length(lengths, f1, length_limits),
        f1_of_sentences=f1,
    )


def mean_f1_interval(
    scores: Sequence[ParsingScores], *, num_resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> list[float]:
    """Returns the bootstrap confidence interval of the mean sentence F1 of several models on the same sentences.

    Both models and sentences are resampled, so it covers the variation over seeds and sentences. It is too narrow for
    two or three models. For one model it equals the `sentence_f1_interval` of `score_parses` with the same options.
    """
    f1 = np.stack([score.f1_of_sentences for score in scores])
    generator = np.random.default_rng([seed, len(scores)])

    def mean_of_resample(sentences: np.ndarray) -> float:
        models = generator.integers(0, len(scores), len(scores))
        shares = np.bincount(models, minlength=len(scores)) / len(scores)
        return (shares @ f1)[sentences].mean()

    return _bootstrap_interval(mean_of_resample, f1.shape[1], num_resamples, confidence, seed)


def _check_same_words(index: int, predicted: Sequence[str], gold: Sequence[str]) -> None:
    for position, (word, gold_word) in enumerate(zip_longest(predicted, gold, fillvalue="")):
        if word != gold_word and _unescaped(word) != _unescaped(gold_word):
            sizes = f"of {len(predicted)} and {len(gold)} words; parse the words of the gold trees (`tree.words`)"
            raise ValueError(f"sentence {index}: word {position} is predicted {word!r}, gold {gold_word!r}, {sizes}")


def _unescaped(word: str) -> str:
    """Resolves the escapes of the Penn Treebank in a word, as some readers of trees keep them."""
    return unescape_word(re.sub(r"-[lr]rb-", lambda bracket: bracket[0].upper(), word))


def authors_rule(overlap: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, ...]:
    """Computes precision, recall and F1 of each sentence as `test_phrase_grammar.py` of the authors does.

    Args:
        overlap, predicted, gold: numbers of constituents without the whole sentence, in arrays of the same shape.
    """
    precision = np.where((gold == 0) & (predicted == 0), 1.0, overlap / (predicted + AUTHORS_EPSILON))
    recall = np.where(gold == 0, 1.0, overlap / (gold + AUTHORS_EPSILON))
    return precision, recall, 2 * precision * recall / (precision + recall + AUTHORS_EPSILON)


def _rates(overlap: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns precision, recall and F1 of counts without an epsilon; all are 1 if nothing is gold or predicted."""
    precision = np.where(predicted > 0, overlap / np.maximum(predicted, 1), gold == 0)
    recall = np.where(gold > 0, overlap / np.maximum(gold, 1), 1.0)
    return precision, recall, np.where(predicted + gold > 0, 2 * overlap / np.maximum(predicted + gold, 1), 1.0)


def _bootstrap_interval(
    statistic: Callable[[np.ndarray], float], num_sentences: int, num_resamples: int, confidence: float, seed: int
) -> list[float]:
    """Returns the percentile interval of a statistic of resampled sentence indices."""
    generator = np.random.default_rng(seed)
    values = [statistic(generator.integers(0, num_sentences, num_sentences)) for _ in range(num_resamples)]
    tail = (1 - confidence) / 2
    return np.quantile(values, [tail, 1 - tail]).tolist()


def _scores_by_length(lengths: np.ndarray, f1: np.ndarray, limits: Sequence[int]) -> list[LengthScore]:
    groups = []
    for lower, upper in zip([0, *limits], [*limits, None], strict=True):
        in_group = (lengths > lower) & (lengths <= (np.inf if upper is None else upper))
        if in_group.any():
            groups.append(LengthScore(lower + 1, upper, int(in_group.sum()), float(f1[in_group].mean())))
    return groups


def score_baselines(gold: Sequence[GoldTree], seed: int = 0, **options) -> dict[str, ParsingScores]:
    """Returns the scores of all baselines by name; `options` are passed to `score_parses`."""
    return {name: score_parses(baseline_trees(name, gold, seed), gold, **options) for name in BASELINES}
