from functools import cache
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.averaging import average_trees
from onlstm_hf.trees.baselines import left_branching_tree, random_split_tree, right_branching_tree, uniform_random_tree
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import GoldTree


@cache
def binary_trees(start, end):
    """The spans of every binary tree over the words from `start` to `end`."""
    if end - start < 2:
        return [frozenset()]
    return [
        left | right | {(start, end)}
        for split in range(start + 1, end)
        for left, right in product(binary_trees(start, split), binary_trees(split, end))
    ]


def agreement(tree, trees):
    """Counts the constituents that a tree shares with others."""
    return sum(len(set(tree) & set(other.spans())) for other in trees)


def words_of(number):
    return [f"w{index}" for index in range(number)]


@st.composite
def trees_of_one_sentence(draw, min_words=1, max_words=7):
    """Binary trees, and flat ones, over the same words."""
    words = words_of(draw(st.integers(min_words, max_words)))
    distances = st.lists(st.integers(0, 5), min_size=len(words), max_size=len(words))
    binary = distances.map(lambda values: tree_from_distances(values, words))
    return draw(
        st.lists(st.one_of(binary, binary, st.just(InducedTree.from_spans(words, []))), min_size=1, max_size=5)
    )


@given(trees_of_one_sentence())
def test_no_binary_tree_agrees_better(trees):
    average = average_trees(trees)
    assert average.is_binary and average.words == trees[0].words
    best = max(agreement(spans, trees) for spans in binary_trees(0, len(average.words)))
    assert agreement(average.spans(), trees) == best


@pytest.mark.parametrize("num_words", [8, 9])
def test_no_binary_tree_agrees_better_on_longer_sentences(num_words):
    generator = Random(num_words)
    trees = [uniform_random_tree(words_of(num_words), generator) for _ in range(4)]
    best = max(agreement(spans, trees) for spans in binary_trees(0, num_words))
    assert agreement(average_trees(trees).spans(), trees) == best


@given(trees_of_one_sentence(), st.randoms(use_true_random=False))
def test_the_order_of_the_trees_does_not_matter(trees, generator):
    shuffled = generator.sample(trees, len(trees))
    assert average_trees(shuffled) == average_trees(trees)


@given(trees_of_one_sentence(), st.integers(1, 3))
def test_only_the_proportions_of_the_trees_matter(trees, copies):
    assert average_trees(trees * copies) == average_trees(trees)


@given(st.integers(1, 60), st.integers(0, 10_000), st.integers(1, 4))
def test_trees_that_agree_are_their_average(num_words, seed, copies):
    tree = random_split_tree(words_of(num_words), Random(seed))
    assert average_trees([tree] * copies) == tree


@given(st.integers(2, 30), st.integers(0, 10_000))
def test_a_majority_wins(num_words, seed):
    generator = Random(seed)
    majority, other = (uniform_random_tree(words_of(num_words), generator) for _ in range(2))
    assert average_trees([other, majority, majority]) == majority


@given(trees_of_one_sentence(min_words=3))
def test_the_average_has_the_highest_mean_f1_against_binary_trees(trees):
    trees = [tree for tree in trees if tree.is_binary]
    if not trees:
        return

    def mean_f1(candidate):
        golds = [GoldTree(tree.words, tuple(("X", *span) for span in tree.spans())) for tree in trees]
        return score_parses([candidate] * len(golds), golds, num_resamples=0).plain_sentence_f1

    assert mean_f1(average_trees(trees)) >= max(map(mean_f1, trees)) - 1e-12


def test_of_equal_trees_the_average_branches_right():
    words = words_of(5)
    assert average_trees([InducedTree.from_spans(words, [])]) == right_branching_tree(words)
    assert average_trees([left_branching_tree(words), right_branching_tree(words)]) == right_branching_tree(words)


@pytest.mark.parametrize("num_words", [0, 1, 2])
def test_sentences_of_few_words(num_words):
    tree = InducedTree.from_spans(words_of(num_words), [])
    assert average_trees([tree, tree]) == tree


def test_long_sentences_take_little_time():
    generator = Random(0)
    trees = [uniform_random_tree(words_of(400), generator) for _ in range(3)]
    average = average_trees(trees)
    assert agreement(average.spans(), trees) >= max(agreement(tree.spans(), trees) for tree in trees)


def test_nothing_and_different_words_are_refused():
    with pytest.raises(ValueError, match="no tree to average"):
        average_trees([])
    trees = [InducedTree.from_nested(["the", "cat"]), InducedTree.from_nested(["the", "dog"])]
    with pytest.raises(ValueError, match="tree 1 has other words than tree 0: 'the dog', not 'the cat'"):
        average_trees(trees)


@given(trees_of_one_sentence(), st.data())
def test_a_weight_counts_as_so_many_copies(trees, data):
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(trees), max_size=len(trees)))
    if any(weights):
        copies = [tree for tree, weight in zip(trees, weights, strict=True) for _ in range(weight)]
        assert average_trees(trees, weights) == average_trees(copies)
        halved = [weight / 2 for weight in weights]
        assert average_trees(trees, halved) == average_trees(copies)


def test_bad_weights_are_refused():
    trees = [right_branching_tree(words_of(3))] * 2
    for weights in ([1], [1, -1], [1, float("nan")]):
        with pytest.raises(ValueError, match="a weight that is not negative for each of 2 trees"):
            average_trees(trees, weights)


@given(trees_of_one_sentence(max_words=5))
def test_no_tree_that_the_papers_rule_can_make_agrees_better(trees):
    words = trees[0].words
    possible = {tree_from_distances(order, words) for order in permutations(range(len(words)))}
    average = average_trees(trees, branching_bias="right")
    assert average in possible
    assert agreement(average.spans(), trees) == max(agreement(tree.spans(), trees) for tree in possible)


@given(trees_of_one_sentence(), st.sampled_from(["right", "none"]))
def test_the_average_of_a_rule_has_distances_that_make_it_again(trees, rule):
    average = average_trees(trees, branching_bias=rule)
    assert tree_from_distances(average.distances, average.words, rule) == average
    if rule == "none":
        assert average == average_trees(trees)
    if all(tree == trees[0] and tree.is_binary for tree in trees):
        assert average == trees[0]
