from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from onlstm_hf.trees.averaging import TIES, average_trees, best_trees
from onlstm_hf.trees.baselines import left_branching_tree, right_branching_tree
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from tests.helpers.random_trees import binary_trees, drawn_trees, numbered


def agreement(tree, trees):
    """Counts the constituents that a tree shares with others."""
    return sum(len(set(tree) & set(other.spans())) for other in trees)


@st.composite
def trees_of_one_sentence(draw, min_words=0, max_words=7):
    """Draws binary and flat trees over the same words."""
    words = numbered(draw(st.integers(min_words, max_words)))
    return draw(st.lists(drawn_trees(words), min_size=1, max_size=5))


def trees_of_rule(words, rule):
    """Returns all trees that a branching rule can make."""
    return {tree_from_distances(order, words, rule) for order in permutations(range(len(words)))}


@given(trees_of_one_sentence(), st.sampled_from(TIES))
def test_average_has_the_best_agreement_of_all_binary_trees(trees, ties):
    average = average_trees(trees, ties=ties)
    assert average.is_binary and average.words == trees[0].words
    best = max(agreement(spans, trees) for spans in binary_trees(0, len(average.words)))
    assert agreement(average.spans(), trees) == best


@given(trees_of_one_sentence(max_words=5), st.sampled_from(TIES))
def test_average_has_the_best_agreement_of_all_trees_of_the_papers_rule(trees, ties):
    average, possible = average_trees(trees, branching_bias="right", ties=ties), trees_of_rule(trees[0].words, "right")
    assert average in possible
    assert agreement(average.spans(), trees) == max(agreement(tree.spans(), trees) for tree in possible)


@given(trees_of_one_sentence(), st.randoms(use_true_random=False))
def test_order_of_the_trees_does_not_matter(trees, generator):
    shuffled = generator.sample(trees, len(trees))
    assert average_trees(shuffled) == average_trees(trees)


@pytest.mark.parametrize("ties", ["right", "left"])
@pytest.mark.parametrize("num_words", [2, 5, 30])
def test_right_and_left_ties_give_right_and_left_branching(ties, num_words):
    words = numbered(num_words)
    expected = {"right": right_branching_tree, "left": left_branching_tree}[ties](words)
    assert average_trees([InducedTree.from_spans(words, [])], ties=ties) == expected
    assert average_trees([left_branching_tree(words), right_branching_tree(words)], ties=ties) == expected


def repeated_averages(trees, number, **options):
    """Counts the averages of repeated draws."""
    generator = np.random.default_rng(1)
    return Counter(average_trees(trees, seed=generator, **options) for _ in range(number))


@settings(max_examples=5, deadline=None)
@given(trees_of_one_sentence(min_words=4, max_words=5), st.sampled_from(["right", "none"]))
def test_random_ties_draw_the_best_trees_uniformly(trees, rule):
    agreements = {tree: agreement(tree.spans(), trees) for tree in trees_of_rule(trees[0].words, rule)}
    equally_good = {tree for tree, value in agreements.items() if value == max(agreements.values())}
    drawn = repeated_averages(trees, 40 * len(equally_good), branching_bias=rule)
    assert set(drawn) == equally_good
    if len(equally_good) > 1:
        assert chisquare([drawn[tree] for tree in equally_good]).pvalue > 1e-6


def test_random_ties_are_seeded():
    flat = InducedTree.from_spans(numbered(12), [])
    assert average_trees([flat], seed=3) == average_trees([flat], seed=3)
    assert len({average_trees([flat], seed=seed) for seed in range(5)}) > 1
    generator = np.random.default_rng(7)
    assert len({average_trees([flat], seed=generator) for _ in range(5)}) > 1


def test_ties_are_found_despite_rounding_of_weight_sums():
    words = numbered(4)
    left, right = left_branching_tree(words), right_branching_tree(words)
    drawn = repeated_averages([left, right, right, right], 50, weights=[0.3, 0.1, 0.1, 0.1])
    assert set(drawn) >= {left, right}


@pytest.mark.parametrize("ties", TIES)
def test_best_trees_have_the_highest_sum_of_scores(ties):
    scores = np.random.default_rng(0).random((4, 7, 7))
    for tree, of_span in zip(best_trees(scores, [numbered(6)] * 4, ties=ties), scores, strict=True):
        assert set(tree.spans()) == max(binary_trees(0, 6), key=lambda spans: sum(of_span[span] for span in spans))


@pytest.mark.parametrize(
    ("trees", "options", "message"),
    [
        ([], {}, "no tree to average"),
        (
            ["(the cat)", "(the dog)"],
            {},
            r"tree 1 and tree 0 have different words: .*\(\(the dog\)\) and .*\(\(the cat\)\)",
        ),
        (["(the cat)"], {"ties": "last"}, "ties must be .* got 'last'"),
        *(
            (["(the cat)"] * 2, {"weights": weights}, "2 finite, non-negative weights, at least one positive")
            for weights in ([1], [1, -1], [1, float("nan")], [1, float("inf")], [0, 0], [0.0, 0.0])
        ),
    ],
)
def test_invalid_trees_weights_and_ties_are_refused(trees, options, message):
    with pytest.raises(ValueError, match=message):
        average_trees(list(map(InducedTree.from_bracket, trees)), **options)


@given(trees_of_one_sentence(), st.data())
def test_a_weight_equals_that_many_copies(trees, data):
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(trees), max_size=len(trees)))
    if any(weights):
        copies = [tree for tree, weight in zip(trees, weights, strict=True) for _ in range(weight)]
        assert average_trees(trees, weights) == average_trees(copies)
        halved = [weight / 2 for weight in weights]
        assert average_trees(trees, halved) == average_trees(copies)


@given(trees_of_one_sentence(), st.sampled_from(["right", "none"]))
def test_average_of_a_rule_has_distances_that_rebuild_it(trees, rule):
    average = average_trees(trees, branching_bias=rule)
    assert tree_from_distances(average.distances, average.words, rule) == average
    if rule == "none":
        assert average == average_trees(trees)
    if all(tree == trees[0] and tree.is_binary for tree in trees):
        assert average == trees[0]
