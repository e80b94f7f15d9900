"""Comparison of a tree with a gold tree: shared and crossing constituents, F1, and accepted gold trees."""

import pickle
from ast import literal_eval

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf import GoldTree, InducedTree, score_parses, tree_from_distances
from onlstm_hf.trees.induced_tree import NUM_TREES_SHOWN, TreeList
from tests.helpers.random_trees import as_gold, numbered
from tests.helpers.requirements import library


def cross(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Returns whether the sets of words overlap and neither contains the other."""
    first, second = set(range(*one)), set(range(*other))
    return bool(first & second) and bool(first - second) and bool(second - first)


@st.composite
def sentences_with_two_trees(draw):
    words = numbered(draw(st.integers(0, 9)))
    distances = st.lists(st.floats(0, 1), min_size=len(words), max_size=len(words))
    return tree_from_distances(draw(distances), words), tree_from_distances(draw(distances), words, "none")


def test_shared_crossing_and_missed_constituents():
    comparison = InducedTree.from_bracket("(a ((b c) (d e)))").compare("(((a b) c) (d e))")
    assert comparison.shared == [(3, 5)]
    assert comparison.crossing == [(1, 5), (1, 3)]
    assert comparison.missed == [(0, 3), (0, 2)]
    assert (comparison.precision, comparison.recall, comparison.f1) == (1 / 3, 1 / 3, 1 / 3)
    assert "F1 33.3" in str(comparison)


@given(sentences_with_two_trees())
def test_scores_equal_those_of_score_parses(trees):
    tree, other = trees
    comparison = tree.compare(other)
    scores = score_parses([tree], [as_gold(other)], num_resamples=0)
    rates = (comparison.precision, comparison.recall, comparison.f1)
    assert rates == pytest.approx((scores.sentence_precision, scores.sentence_recall, scores.sentence_f1), abs=1e-6)
    inner = [[span for span in each.spans() if span != (0, len(tree.words))] for each in trees]
    assert comparison.crossing == [span for span in inner[0] if any(cross(span, gold) for gold in inner[1])]
    assert sorted(comparison.shared + comparison.missed) == sorted(inner[1])


@pytest.mark.parametrize(
    "gold",
    ["(S (NP The cat) sat)", "((The cat) sat)", "(S (NP (DT The) (NN cat)) (VP (VBD sat)))", [["the", "cat"], "sat"]],
)
def test_all_kinds_of_gold_trees_are_accepted(gold):
    tree = InducedTree.from_bracket("((the cat) sat)")
    assert tree.compare(gold).f1 == tree.compare(tree).f1 == 1


@pytest.mark.parametrize("gold", ["((-LRB- a) b)", GoldTree.from_bracket("(S (NP (NN -LRB-) (NN a)) (VB b))")])
def test_penn_treebank_escapes_are_the_same_words(gold):
    assert InducedTree.from_spans(["(", "a", "b"], [(0, 2)]).compare(gold).f1 == 1


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("((a b) d)", "word 2 is 'c'"),
        ("(a b)", "3 words, the gold tree 2"),
        ("((a b)", "never closed"),
        (7, "subtree must be a word or a list of subtrees, got int"),
    ],
)
def test_gold_trees_that_do_not_match_are_refused(gold, message):
    with pytest.raises(ValueError, match=message):
        InducedTree.from_bracket("((a b) c)").compare(gold)


PENN = """(S (NP (DT The) (NN cat)) (VP (VBD paid) (NP (NP (QP ($ $) (CD 4.5) (CD million)) (-NONE- *U*)) (, ,)
  (NP (CD 9) (NN %)))) (. .))"""
TYPED = "((The cat) (paid (($ (4.5 million)) (9 %))))"


@pytest.mark.parametrize("tree", [TYPED, TYPED.replace("$ (4.5 million)", "4.5 million")])
def test_punctuation_currency_signs_and_empty_elements_of_only_one_tree_are_ignored(tree):
    tree = InducedTree.from_bracket(tree)
    for gold in (PENN, library("nltk").Tree.fromstring(PENN), GoldTree.from_bracket(PENN)):
        comparison = tree.compare(gold)
        assert comparison.tree.words == ("The", "cat", "paid", "4.5", "million", "9", "%")
        assert comparison.f1 == 1 and comparison.shared == [(0, 2), (2, 7), (3, 7), (3, 5), (5, 7)]


def test_punctuation_of_both_trees_counts():
    tree = InducedTree.from_bracket("(((the cat) sat) .)")
    assert tree.compare("(S (S (NP (DT the) (NN cat)) (VBD sat)) (. .))").shared == [(0, 3), (0, 2)]


def test_words_suggested_by_the_error_can_be_compared():
    gold = "(S (NP (DT The) (NN cat)) (VP (MD can) (RB not) (VB sit)) (. .))"
    with pytest.raises(ValueError, match="parse") as refused:
        InducedTree.from_bracket("((the cat) (cannot sit))").compare(gold)
    words = literal_eval(str(refused.value).partition("model.parse([")[2].partition("], tokenizer")[0])
    assert InducedTree.from_spans(words, [(0, 2)]).compare(gold).shared == [(0, 2)]


def test_notebooks_show_pictures():
    tree = InducedTree.from_bracket("((a b) c)")
    comparison = tree.compare("(a (b c))")
    assert comparison._repr_svg_() == comparison.to_svg() and "0 of 1 constituents are gold" in comparison.to_svg()
    assert TreeList([tree, tree])._repr_html_().count("<svg") == 2
    many = TreeList([tree] * (NUM_TREES_SHOWN + 3))._repr_html_()
    assert many.count("<svg") == NUM_TREES_SHOWN and "3 more" in many
    assert pickle.loads(pickle.dumps(TreeList([tree]))) == [tree]
