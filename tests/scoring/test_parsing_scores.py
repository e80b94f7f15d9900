import gzip
import json
import math
from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from onlstm_hf.scoring.parsing_scores import LabelRecall, mean_f1_interval, score_parses
from onlstm_hf.trees.baselines import (
    BASELINES,
    baseline_trees,
    random_split_tree,
    right_branching_tree,
    uniform_random_tree,
    upper_bound_tree,
)
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import GoldTree, read_treebank
from tests.helpers.random_trees import binary_trees, numbered

GOLD = GoldTree.from_bracket("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))))")


def random_gold(num_words, generator):
    """Draws a tree of any arity: a random binary tree without some of its brackets."""
    words = tuple(str(index) for index in range(num_words))
    spans = random_split_tree(words, generator).spans()
    return GoldTree(words, tuple(("X", *span) for span in spans if generator.random() < 0.6))


def test_scores_of_one_sentence_by_hand():
    scores = score_parses([[["the", ["old", "cat"]], [["sat", "on"], "it"]]], [GOLD])
    assert scores.sentence_precision == pytest.approx(2 / 4) and scores.sentence_recall == pytest.approx(2 / 3)
    assert (scores.corpus_precision, scores.corpus_recall) == (2 / 4, 2 / 3)
    assert scores.corpus_f1 == scores.plain_sentence_f1 == pytest.approx(4 / 7)
    assert (scores.evalb_precision, scores.evalb_recall, scores.evalb_f1) == (3 / 5, 3 / 4, pytest.approx(6 / 9))
    assert scores.label_recall == {"NP": LabelRecall(1, 1), "PP": LabelRecall(0, 1), "VP": LabelRecall(1, 1)}
    assert scores.average_depth == pytest.approx((2 + 3 + 3 + 3 + 3 + 2) / 6)


def test_sentences_without_inner_gold_constituents():
    flat, two, one = ("a", "b", "c"), ("a", "b"), ("a",)
    for words, sentence_f1 in [(flat, 0.0), (two, 1.0), (one, 1.0)]:
        scores = score_parses([right_branching_tree(words)], [GoldTree(words, ())])
        assert scores.sentence_recall == 1.0
        assert scores.sentence_f1 == pytest.approx(sentence_f1, abs=1e-7)
        assert scores.num_plain_sentences == 0 and scores.plain_sentence_f1 is None
    assert score_parses([[*one]], [GoldTree(one, ())]).average_depth == 0


def test_plain_rule_ignores_sentences_without_inner_gold_constituents():
    flat = GoldTree(("a", "b", "c"), (("X", 0, 3),))
    scores = score_parses([right_branching_tree(GOLD.words), right_branching_tree(flat.words)], [GOLD, flat])
    assert scores.num_plain_sentences == 1
    assert scores.plain_sentence_precision == 2 / 4
    assert scores.plain_sentence_recall == 2 / 3
    assert scores.plain_sentence_f1 == pytest.approx(4 / 7)
    assert scores.sentence_f1 == pytest.approx(2 / 7)


def test_brackets_over_the_same_words_count_once_except_for_label_recall():
    gold = GoldTree(("a", "b", "c", "d"), (("S", 0, 4), ("SBAR", 1, 4), ("VP", 1, 4), ("VP", 1, 4), ("NP", 1, 3)))
    scores = score_parses([["a", ["b", ["c", "d"]]]], [gold])
    assert (scores.evalb_precision, scores.evalb_recall) == (2 / 3, 2 / 3)
    assert scores.label_recall == {"NP": LabelRecall(0, 1), "SBAR": LabelRecall(1, 1), "VP": LabelRecall(1, 1)}


def test_scores_by_length():
    gold = [random_gold(length, Random(length)) for length in (1, 2, 10, 11, 20, 45)]
    predicted = baseline_trees("right branching", gold)
    groups = score_parses(predicted, gold).by_length
    found = [(group.min_words, group.max_words, group.num_sentences) for group in groups]
    assert found == [(1, 10, 3), (11, 20, 2), (41, None, 1)]
    assert groups[0].sentence_f1 == pytest.approx(score_parses(predicted[:3], gold[:3]).sentence_f1)
    with pytest.raises(ValueError, match="length_limits must increase"):
        score_parses(predicted, gold, length_limits=(20, 10))
    (group,) = score_parses(predicted, gold, length_limits=()).by_length
    assert (group.max_words, group.num_sentences) == (None, 6)


def test_confidence_interval_is_seeded_and_close_to_the_normal_one():
    generator = Random(0)
    gold = [random_gold(generator.randint(3, 20), generator) for _ in range(400)]
    predicted = baseline_trees("random (uniform splits)", gold)
    scores = score_parses(predicted, gold, seed=1)
    assert scores.sentence_f1_interval == score_parses(predicted, gold, seed=1).sentence_f1_interval
    assert scores.sentence_f1_interval != score_parses(predicted, gold, seed=2).sentence_f1_interval
    values = scores.f1_of_sentences
    margin = 1.96 * np.std(values) / math.sqrt(len(values))
    expected = (scores.sentence_f1 - margin, scores.sentence_f1 + margin)
    assert scores.sentence_f1_interval == pytest.approx(expected, abs=0.2 * margin)
    low, high = score_parses(predicted, gold, seed=1, confidence=0.5).sentence_f1_interval
    assert scores.sentence_f1_interval[0] < low < high < scores.sentence_f1_interval[1]
    assert score_parses(predicted, gold, num_resamples=0).sentence_f1_interval is None


def test_interval_of_several_models_covers_models_and_sentences():
    generator = Random(0)
    gold = [random_gold(generator.randint(3, 20), generator) for _ in range(100)]
    baselines = ["right branching", "left branching", "balanced"]
    predicted = [baseline_trees("random (uniform splits)", gold, seed) for seed in range(9)]
    predicted += [baseline_trees(name, gold) for name in baselines]
    scores = [score_parses(trees, gold, num_resamples=0) for trees in predicted]
    f1 = np.array([score.f1_of_sentences for score in scores])
    of_models, of_sentences = f1.mean(axis=1), f1.mean(axis=0)
    rest = f1 - of_models[:, None] - of_sentences + f1.mean()
    variance = of_models.var() / len(predicted) + of_sentences.var() / len(gold) + rest.var() / f1.size
    margin = 1.96 * math.sqrt(variance)
    low, high = interval = mean_f1_interval(scores, seed=1)
    assert (low, high) == pytest.approx((f1.mean() - margin, f1.mean() + margin), abs=0.2 * margin)
    assert margin > 1.25 * 1.96 * math.sqrt(of_sentences.var() / len(gold)), "models must matter"
    assert interval == mean_f1_interval(scores, seed=1) != mean_f1_interval(scores, seed=2)
    inner = mean_f1_interval(scores, seed=1, confidence=0.5)
    assert low < inner[0] < inner[1] < high


def test_interval_of_one_model_equals_that_of_its_sentences():
    generator = Random(0)
    gold = [random_gold(generator.randint(3, 20), generator) for _ in range(20)]
    scores = score_parses(baseline_trees("balanced", gold), gold, seed=3, confidence=0.9, num_resamples=50)
    assert mean_f1_interval([scores], seed=3, confidence=0.9, num_resamples=50) == scores.sentence_f1_interval


def test_interval_of_corpus_f1_is_close_to_the_delta_method():
    generator = Random(0)
    gold = [random_gold(generator.randint(5, 12), generator) for _ in range(300)]
    predicted = [uniform_random_tree(tree.words, generator) for tree in gold]
    scores = score_parses(predicted, gold, seed=1)
    overlaps, sizes = [], []
    for tree, gold_tree in zip(predicted, gold, strict=True):
        spans, gold_spans = set(tree.spans()), set(gold_tree.spans())
        overlaps.append(2 * (len(spans & gold_spans) - 1))
        sizes.append(len(spans) + len(gold_spans) - 2)
    assert scores.corpus_f1 == pytest.approx(sum(overlaps) / sum(sizes))
    residuals = np.array(overlaps) - scores.corpus_f1 * np.array(sizes)
    margin = 1.96 * residuals.std() / np.mean(sizes) / np.sqrt(len(gold))
    expected = scores.corpus_f1 - margin, scores.corpus_f1 + margin
    assert scores.corpus_f1_interval == pytest.approx(expected, abs=0.2 * margin)
    assert score_parses(predicted, gold, num_resamples=0).corpus_f1_interval is None


def test_dictionary_is_json_ready_and_complete():
    scores = score_parses([GOLD], [GOLD])
    dictionary = scores.to_dict()
    assert json.loads(json.dumps(dictionary)) == dictionary
    assert dictionary["label_recall"]["NP"] == {"correct": 1, "total": 1, "recall": 1.0}
    assert dictionary["sentence_f1"] == scores.sentence_f1
    assert dictionary["by_length"][0]["max_words"] == 10


@pytest.mark.parametrize(
    ("predicted", "gold", "message"),
    [
        ([], [], "there must be trees"),
        ([GOLD], [GOLD, GOLD], "one predicted per gold tree, not 1 for 2"),
        ([GOLD, GOLD], [GOLD, "(S (X a))"], "gold tree 1 is a str; read it with GoldTree.from_bracket"),
        ([["the", "old"]], [GOLD], "sentence 0: word 2 is predicted '', gold 'cat', of 2 and 6 words"),
        ([GOLD, list("abc")], [GOLD, GoldTree(tuple("abd"), ())], "sentence 1: word 2 is predicted 'c', gold 'd'"),
    ],
)
def test_trees_that_do_not_match_are_refused(predicted, gold, message):
    with pytest.raises(ValueError, match=message):
        score_parses(predicted, gold)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="range"):
        score_parses([GOLD], [GOLD], confidence=95)
    with pytest.raises(ValueError, match="unknown baseline 'best'.*'balanced'"):
        baseline_trees("best", [GOLD])
    for wrong in ([], [score_parses([tree] * n, [tree] * n) for n, tree in ((1, GOLD), (2, GOLD))]):
        with pytest.raises(ValueError, match="array"):
            mean_f1_interval(wrong)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("num_words", [0, 1, 2, 3, 8, 10_000])
def test_baselines_are_binary_trees_over_the_words(name, num_words):
    gold = GoldTree(("w",) * num_words, tuple(("X", start, num_words) for start in range(0, num_words - 2)))
    (tree,) = baseline_trees(name, [gold])
    assert tree.words == gold.words and tree.is_binary
    assert score_parses([tree], [gold], num_resamples=0).num_sentences == 1


def test_shapes_of_the_baselines():
    gold = GoldTree(tuple("abcde"), (("X", 1, 3),))
    shapes = {name: tree.to_bracket() for name in BASELINES for tree in baseline_trees(name, [gold])}
    assert shapes["left branching"] == "((((a b) c) d) e)"
    assert shapes["right branching"] == "(a (b (c (d e))))"
    assert shapes["balanced"] == "((a b) (c (d e)))"
    assert shapes["upper bound"] == "(a ((b c) (d e)))"


@pytest.mark.parametrize("name", ["random (uniform trees)", "random (uniform splits)"])
def test_random_baselines_are_seeded(name):
    gold = [random_gold(12, Random(4))] * 5
    assert baseline_trees(name, gold, seed=1) == baseline_trees(name, gold, seed=1)
    assert baseline_trees(name, gold, seed=1) != baseline_trees(name, gold, seed=2)
    assert len(set(baseline_trees(name, gold, seed=1))) == 5


@pytest.mark.parametrize("num_words", [3, 4, 5])
@pytest.mark.parametrize("draw", [uniform_random_tree, random_split_tree])
def test_random_trees_have_their_distribution(draw, num_words):
    trees = binary_trees(0, num_words)
    if draw is uniform_random_tree:
        probabilities = [1 / len(trees)] * len(trees)
    else:  # each constituent is split at any of its places
        probabilities = [math.prod(1 / (end - start - 1) for start, end in spans) for spans in trees]
    generator, num_draws = Random(num_words), 14_000
    counts = Counter(frozenset(draw(numbered(num_words), generator).spans()) for _ in range(num_draws))
    assert set(counts) == set(trees)
    expected = [num_draws * probability for probability in probabilities]
    assert chisquare([counts[spans] for spans in trees], expected).pvalue > 1e-3


@settings(max_examples=40)
@given(st.integers(1, 7), st.integers(0, 10_000))
def test_upper_bound_is_the_best_of_all_binary_trees(num_words, seed):
    gold = random_gold(num_words, Random(seed))

    def scores(tree):
        result = score_parses([tree], [gold], num_resamples=0)
        return result.sentence_f1, result.corpus_f1, result.evalb_f1

    trees = [InducedTree.from_spans(gold.words, spans) for spans in binary_trees(0, num_words)]
    best = np.max([scores(tree) for tree in trees], axis=0)
    assert scores(upper_bound_tree(gold)) == pytest.approx(best)


@pytest.fixture(scope="module")
def sample(shared_dir):
    return read_treebank(shared_dir / "data/wsj_sample")


@pytest.mark.parametrize("name", ["left", "right", "balanced", "random"])
@pytest.mark.parametrize("part", ["wsj_sample", "wsj10_sample"])
def test_scores_equal_those_of_the_authors_code_and_evalb(shared_dir, sample, part, name):
    golden = json.loads((shared_dir / "golden/parsing_scores.json").read_text(encoding="utf-8"))[part][name]
    gold = sample if part == "wsj_sample" else [tree for tree in sample if len(tree.words) <= 10]
    if name == "random":
        with gzip.open(shared_dir / f"golden/{part}_random_trees.jsonl.gz", "rt", encoding="utf-8") as lines:
            predicted = [json.loads(line) for line in lines]
    else:
        predicted = baseline_trees({"balanced": name}.get(name, f"{name} branching"), gold)
    scores = score_parses(predicted, gold)
    assert scores.num_sentences == golden["sentences"]
    for rule, rate in product(["sentence", "corpus"], ["precision", "recall", "f1"]):
        key = f"{rule}_{rate}"
        assert getattr(scores, key) == pytest.approx(golden[key], abs=1e-6), key
    for rate, percentage in golden["evalb"].items():
        assert 100 * getattr(scores, f"evalb_{rate}") == pytest.approx(percentage, abs=0.01), rate
    # The authors' code includes whole sentences.
    whole = Counter(
        label for tree in gold for label, start, end in set(tree.constituents) if (start, end) == (0, len(tree.words))
    )
    for label, (correct, total) in golden["label_recall"].items():
        expected = LabelRecall(correct - whole[label], total - whole[label])
        assert scores.label_recall.get(label, LabelRecall(0, 0)) == expected, label
    assert scores.average_depth == pytest.approx(golden["average_depth"], abs=1e-6)
