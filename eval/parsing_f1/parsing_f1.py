"""Unlabelled F1 of induced constituency trees, as a metric of the `evaluate` library."""

import json
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import datasets
import evaluate

from onlstm_hf.scoring.parsing_scores import score_baselines, score_parses
from onlstm_hf.trees.brackets import write_nltk_tree
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import GoldTree, Preprocessing, preprocessing_of

_DESCRIPTION = """\
Compares induced trees with the gold trees of a treebank: unlabelled precision, recall and F1 averaged over sentences,
over the corpus and as in EVALB, recall by label, depth, and F1 by sentence length. The protocol is that of the PRPN
and ON-LSTM papers and reproduces the scores of their code.
"""

_INPUTS_DESCRIPTION = """
Args:
    predictions: one tree per sentence: a bracket string such as `(the (old cat))` (labels are ignored), nested lists
        of words, an `InducedTree`, an `nltk.Tree`, or a list of half-open spans `(start, end)` of word indices.
    references: one labelled gold tree per sentence: a Penn-style bracket string, an `nltk.Tree`, or a `GoldTree`.
    preprocessing: selects and normalises the words of the gold strings: an
        `onlstm_hf.trees.treebank.Preprocessing`, the name of one of its `PRESETS`, or a dictionary of its fields, such
        as a model's `config.treebank_preprocessing`. The default is the papers' protocol. The predicted trees must
        have exactly these words.
    baselines: whether to add the scores of the baselines on the same sentences as `"baselines"`.
    seed: seed of the random baselines and the bootstrap.
    length_limits, num_resamples, confidence: see `onlstm_hf.scoring.parsing_scores.score_parses`.
Returns:
    `onlstm_hf.scoring.parsing_scores.ParsingScores` as a dictionary: `sentence_f1` (the papers' UF1), `corpus_f1`,
    `evalb_f1`, `label_recall`, `average_depth`, `by_length` and others, as fractions between 0 and 1.
"""


class ParsingF1(evaluate.Metric):
    """Metric interface of `scoring/parsing_scores.py`, which passes trees through string columns of `evaluate`."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Shen, Tan, Sordoni & Courville (2019); the card has the BibTeX entry",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
            codebase_urls=["https://github.com/yikangshen/Ordered-Neurons"],
            reference_urls=["https://openreview.net/forum?id=B1l6qiR5F7"],
        )

    def add(self, *, prediction=None, reference=None, **kwargs):
        """Adds one predicted tree and its gold tree."""
        self.add_batch(predictions=[prediction], references=[reference], **kwargs)

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Adds predicted trees and their gold trees."""
        super().add_batch(
            predictions=_for_each("prediction", _write_prediction, predictions),
            references=_for_each("reference", _write_reference, references),
            **kwargs,
        )

    def _compute(
        self,
        predictions: list[str],
        references: list[str],
        preprocessing: Preprocessing | Mapping | str | None = None,
        baselines: bool = False,
        seed: int = 0,
        **options,
    ) -> dict:
        if isinstance(preprocessing, str):
            preprocessing = preprocessing_of(preprocessing)
        elif isinstance(preprocessing, Mapping):
            preprocessing = preprocessing_of(None, preprocessing)
        gold = _for_each("reference", lambda text: _read_reference(text, preprocessing), references)
        predicted = _for_each("prediction", _read_prediction, predictions, gold)
        scores = score_parses(predicted, gold, seed=seed, **options).to_dict()
        if baselines:
            baseline_scores = score_baselines(gold, seed=seed, **options)
            scores["baselines"] = {name: baseline.to_dict() for name, baseline in baseline_scores.items()}
        return scores


def _for_each(side: str, convert: Callable, *columns: list) -> list:
    """Converts every item; errors name its position."""
    if isinstance(columns[0], str) or not hasattr(columns[0], "__iter__"):
        raise ValueError(f"{side}s must be a list with one tree per sentence, got {type(columns[0]).__name__}")
    converted = []
    for position, items in enumerate(zip(*columns, strict=True)):
        try:
            converted.append(convert(*items))
        except ValueError as error:
            raise ValueError(f"{side} {position}: {error}") from error
    return converted


def _write_prediction(tree: Any) -> str:
    """Converts a predicted tree to a bracket string, or spans to JSON."""
    if isinstance(tree, str) and tree.lstrip().startswith(("(", "[")):
        return tree.strip()
    if isinstance(tree, list | tuple) and all(_is_span(item) for item in tree):
        return json.dumps([[int(start), int(end)] for start, end in tree])
    if not isinstance(tree, InducedTree):
        tree = InducedTree.from_nested(tree.to_nested() if isinstance(tree, GoldTree) else tree)
    return tree.to_bracket()


def _read_prediction(text: str, gold: GoldTree) -> InducedTree:
    if text.startswith("["):
        spans = json.loads(text)
        if not spans and len(gold.words) > 1:
            raise ValueError(f"there is no tree; a flat tree of these words is [[0, {len(gold.words)}]]")
        return InducedTree.from_spans(gold.words, spans)
    return InducedTree.from_bracket(text)


def _write_reference(tree: Any) -> str:
    """Converts a gold tree to a bracket string, or a `GoldTree` to JSON with its preprocessed words."""
    if isinstance(tree, GoldTree):
        return json.dumps([tree.words, tree.constituents])
    if isinstance(tree, str):
        return tree
    if hasattr(tree, "leaves"):
        return write_nltk_tree(tree)
    raise ValueError(f"a gold tree must be a bracket string, an nltk.Tree or a GoldTree, got {type(tree).__name__}")


def _read_reference(text: str, preprocessing: Preprocessing | None) -> GoldTree:
    return GoldTree(*json.loads(text)) if text.startswith("[") else GoldTree.from_bracket(text, preprocessing)


def _is_span(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(index, Integral) for index in item)
