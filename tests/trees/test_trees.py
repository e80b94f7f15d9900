import copy
import pickle
from dataclasses import FrozenInstanceError
from functools import partial

import numpy
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from onlstm_hf.trees.brackets import BracketNode, read_brackets
from onlstm_hf.trees.distances import distances_of_tree, tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from tests.helpers.random_trees import numbered
from tests.helpers.requirements import library

# Few different values make ties common.
DISTANCES = st.lists(st.integers(0, 4) | st.floats(-1e6, 1e6) | st.just(float("inf")), max_size=12)
WORDS = st.text(alphabet="ab()-LRB\\u0 \n\u3000é😀", max_size=8)
NESTED = st.recursive(WORDS, lambda subtree: st.lists(subtree, min_size=1, max_size=4), max_leaves=15)
NUM_WORDS = 10_000


def papers_tree(distances, words):
    """The papers' rule, as a recursion."""
    if len(words) < 2:
        return words[0] if words else []
    largest = max(distances)
    at = next(index for index, distance in enumerate(distances) if distance == largest)
    right = words[at] if at + 1 == len(words) else [words[at], papers_tree(distances[at + 1 :], words[at + 1 :])]
    return right if at == 0 else [papers_tree(distances[:at], words[:at]), right]


def unbiased_tree(distances, words, sign=-1):
    """Ties are broken to the first word, or to the last one with a positive sign."""
    if len(words) < 2:
        return words[0] if words else []
    at = max(range(1, len(words)), key=lambda index: (distances[index], sign * index))
    return [unbiased_tree(distances[:at], words[:at], sign), unbiased_tree(distances[at:], words[at:], sign)]


def collapsed(nested):
    """Removes constituents of one part."""
    if isinstance(nested, str):
        return nested
    parts = [collapsed(part) for part in nested]
    return parts[0] if len(parts) == 1 else parts


def spans_of(nested, start=0):
    """Returns the end of a subtree, and its spans of two words or more."""
    if isinstance(nested, str):
        return start + 1, set()
    end, spans = start, set()
    for part in nested:
        end, part_spans = spans_of(part, end)
        spans |= part_spans
    return end, spans | ({(start, end)} if end - start > 1 else set())


def leaves(nested):
    return [nested] if isinstance(nested, str) else [word for part in nested for word in leaves(part)]


RECURSIONS = {"right": papers_tree, "none": unbiased_tree, "ranges": partial(unbiased_tree, sign=1)}


@given(DISTANCES, st.sampled_from(list(RECURSIONS)))
@example([], "right")
@example([], "none")
@example([], "ranges")
def test_each_rule_equals_its_recursive_definition(distances, bias):
    words = numbered(len(distances))
    assert tree_from_distances(distances, words, bias).to_nested() == RECURSIONS[bias](distances, words)


@given(DISTANCES, st.floats(allow_nan=False))
def test_unbiased_rule_does_not_use_the_first_distance(distances, other):
    words = numbered(len(distances))
    tree = tree_from_distances(distances, words, branching_bias="none")
    assert tree == tree_from_distances([other, *distances[1:]][: len(words)], words, branching_bias="none")


def test_arrays_and_tensors_make_the_same_tree_as_lists():
    distances, words = [0.5, 0.25, 0.75], ["a", "b", "c"]
    trees = [
        tree_from_distances(distances, words),
        tree_from_distances(tuple(distances), tuple(words)),
        tree_from_distances(numpy.array(distances, dtype=numpy.float32), numpy.array(words)),
        tree_from_distances(torch.tensor(distances, dtype=torch.bfloat16, requires_grad=True), words),
    ]
    assert {tree.to_bracket() for tree in trees} == {"((a b) c)"}
    assert {tree.distances for tree in trees} == {(0.5, 0.25, 0.75)}
    assert all(type(word) is str for tree in trees for word in tree.words)


@pytest.mark.parametrize(
    ("distances", "words", "bias", "message"),
    [
        ([1.0], ["a", "b"], "right", "1 distances for 2 words"),
        ([1.0, float("nan")], ["a", "b"], "right", "'b' is NaN"),
        ([1.0, 2.0], ["a", "b"], "left", "branching_bias"),
        ([1.0, 2.0], "ab", "right", "sequence of strings"),
        ([1.0, 2.0], ["a", 2], "right", "sequence of strings"),
    ],
)
def test_bad_distances_are_refused(distances, words, bias, message):
    with pytest.raises(ValueError, match=message):
        tree_from_distances(distances, words, bias)


@given(DISTANCES, st.sampled_from(["right", "none", "ranges"]))
def test_distances_of_a_tree_rebuild_it(distances, bias):
    tree = tree_from_distances(distances, numbered(len(distances)), bias)
    assert tree_from_distances(distances_of_tree(tree, bias), tree.words, bias) == tree


def test_distance_of_a_word_is_the_height_of_the_constituent_that_it_splits():
    tree = InducedTree.from_bracket("((the cat) (sees (a dog)))")
    assert distances_of_tree(tree) == [1, 0, 3, 1, 0]
    assert distances_of_tree(tree, "none") == [4, 1, 3, 2, 1]


def test_trees_that_a_rule_cannot_make_have_no_distances():
    tree = InducedTree.from_bracket("((the cat) ((sees it) often))")
    assert tree_from_distances(distances_of_tree(tree, "none"), tree.words, "none") == tree
    with pytest.raises(ValueError, match="the papers' rule makes no such tree: ..the cat. ..sees it. often"):
        distances_of_tree(tree)
    with pytest.raises(ValueError, match="only binary trees have distances"):
        distances_of_tree(InducedTree.from_spans(["a", "b", "c"], []))
    with pytest.raises(ValueError, match="branching_bias must be"):
        distances_of_tree(tree, "left")


def test_a_list_that_contains_itself_is_refused_but_not_a_repeated_list():
    assert InducedTree.from_nested([nested := ["a"], nested]).words == ("a", "a")
    nested.append([nested])
    with pytest.raises(ValueError, match="contains itself"):
        InducedTree.from_nested(nested)


@given(NESTED)
def test_nested_lists_round_trip(nested):
    tree = InducedTree.from_nested(nested)
    assert list(tree.words) == leaves(nested)
    assert tree.spans() == sorted(spans_of(nested)[1], key=lambda span: (span[0], -span[1]))
    assert tree.to_nested() == collapsed(nested)
    inner = [span for span in tree.spans() if span != (0, len(tree.words))]
    assert InducedTree.from_spans(tree.words, [*reversed(inner), *inner]) == tree


@given(NESTED)
@example(["-LRB(", "(LRB-", "-LRB-RRB-", "\\u0020"])
def test_brackets_round_trip_for_any_words(nested):
    tree = InducedTree.from_nested(nested)
    text = tree.to_bracket()
    assert "\n" not in text
    assert InducedTree.from_bracket(text) == tree
    assert InducedTree.from_bracket(text, labelled=False) == tree


@given(NESTED)
def test_labels_of_brackets_are_dropped(nested):
    def labelled(subtree):
        if isinstance(subtree, str):
            return f"(T {InducedTree.from_nested(subtree).to_bracket()[1:-1]})"
        return f"(X {' '.join(map(labelled, subtree))})"

    tree = InducedTree.from_nested(nested)
    text = labelled(nested)
    assert InducedTree.from_bracket(text, labelled=True) == tree
    if len(tree.words) > 1:
        assert InducedTree.from_bracket(text) == InducedTree.from_bracket(f"( {text} )") == tree


def test_escapes_follow_the_penn_treebank():
    tree = InducedTree.from_nested(["(", ["1/2", ")"]])
    assert tree.to_bracket() == "(-LRB- (1/2 -RRB-))"
    assert InducedTree.from_bracket(r"(X (-LRB- -LRB-) (X (CD 1\/2) (-RRB- -RRB-)))") == tree
    assert InducedTree.from_nested(["-LRB-", ["New York", ""]]).to_bracket() == r"(\-LRB- (New\u0020York \))"


def test_a_first_word_that_looks_like_a_label_gets_its_own_brackets():
    tree = InducedTree.from_nested(["NP", ["DT", "the"], ["NN", "cat"]])
    assert tree.to_bracket() == "((NP) (DT the) (NN cat))"
    assert InducedTree.from_bracket("(NP (DT the) (NN cat))").words == ("the", "cat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got 0"),
        ("(a b) (c d)", "got 2"),
        ("(a b) c", "'c' outside brackets at line 1, column 7"),
        ("cat", "'cat' outside brackets"),
        ("(a b))", r"'\)' outside brackets at line 1, column 6"),
        ("(a\n (b c)", r"'\(' is never closed at line 1, column 1"),
        ("(a\n  ())", "nothing between .* at line 2, column 3"),
    ],
)
def test_malformed_brackets_are_refused_with_their_position(text, message):
    with pytest.raises(ValueError, match=message):
        InducedTree.from_bracket(text)


@pytest.mark.parametrize("text", ["(S (NP (DT the) (NN )) (VP (VBD sat)))", "( (S (NN)\n(VP (VBD sat) (RB)) ) )"])
def test_a_label_without_a_word_does_not_turn_all_labels_into_words(text):
    with pytest.raises(ValueError, match=r"'NN' has no word at line 1, column \d+"):
        InducedTree.from_bracket(text)
    with pytest.raises(ValueError, match="no words"):
        InducedTree.from_bracket(text, labelled=True)
    assert InducedTree.from_bracket("(a (b) (c d))", labelled=False).words == tuple("abcd")


def test_reader_yields_each_tree_with_labels_as_written():
    first, second = read_brackets("( (S (-LRB- -LRB-)) )\n\n((a) b)")
    assert first == BracketNode(None, [BracketNode("S", [BracketNode("-LRB-", ["-LRB-"])])])
    assert second == BracketNode(None, [BracketNode("a", []), "b"])
    assert list(read_brackets(" \n")) == []


@pytest.mark.parametrize("nested", [3, ["a", 3], ["a", []], [[]], {"a": "b"}, ["a", None]])
def test_anything_but_nested_lists_of_words_is_refused(nested):
    with pytest.raises(ValueError, match="no words|subtree"):
        InducedTree.from_nested(nested)


@pytest.mark.parametrize("spans", [[(0, 2), (1, 3)], [(0, 4)], [(-1, 2)], [(2, 2)]])
def test_impossible_spans_are_refused(spans):
    with pytest.raises(ValueError, match="not a span|the spans .* cross"):
        InducedTree.from_spans(["a", "b", "c"], spans)
    assert InducedTree.from_spans(["a"], [], [1]).distances == (1,)
    with pytest.raises(ValueError, match="one distance per word"):
        InducedTree.from_spans(["a"], [], [1, 2])


def test_depth_and_arity():
    all_nested = ([], "a", ["a", "b", "c"], ["a", ["b", "c"], "d"], ["a", ["b", ["c", "d"]]])
    trees = [InducedTree.from_nested(nested) for nested in all_nested]
    assert [tree.depth for tree in trees] == [0, 0, 1, 2, 3]
    assert [tree.is_binary for tree in trees] == [True, True, False, False, True]


def test_nltk_trees_round_trip():
    nltk = library("nltk")
    tree = InducedTree.from_nested([["the", "cat"], "sat"])
    assert tree.to_nltk("S") == nltk.Tree.fromstring("(S (S the cat) sat)")
    assert InducedTree.from_nested(tree.to_nltk()) == tree
    assert InducedTree.from_nested("a").to_nltk() == nltk.Tree("X", ["a"])
    assert InducedTree.from_nested([]).to_nltk() == nltk.Tree("X", [])


def test_trees_are_immutable_values():
    tree = tree_from_distances([1.0, 2.0], ["a", "b"])
    same_without_distances = InducedTree.from_nested(["a", "b"])
    assert tree == same_without_distances and hash(tree) == hash(same_without_distances)
    assert tree != InducedTree.from_nested(["a", "c"])
    assert repr(tree) == "InducedTree((a b))"
    with pytest.raises(FrozenInstanceError):
        tree.words = ("c", "d")
    for copied in (pickle.loads(pickle.dumps(tree)), copy.deepcopy(tree)):
        assert copied == tree and copied.distances == (1.0, 2.0)


@pytest.mark.parametrize("bias", ["right", "none"])
@pytest.mark.parametrize(
    ("distances", "right_branching"),
    [(range(NUM_WORDS, 0, -1), True), (range(NUM_WORDS), False), ([1.0] * NUM_WORDS, True)],
)
def test_ten_thousand_words_in_one_chain(distances, right_branching, bias):
    tree = tree_from_distances(distances, numbered(NUM_WORDS), bias)
    assert set(tree.spans()) == {
        (n, NUM_WORDS) if right_branching else (0, NUM_WORDS - n) for n in range(NUM_WORDS - 1)
    }
    assert tree.depth == NUM_WORDS - 1
    assert InducedTree.from_bracket(tree.to_bracket()) == tree
    assert InducedTree.from_nested(tree.to_nested()) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert len(repr(tree)) < 100
    assert str(tree).count("\n") == NUM_WORDS - 1
    assert tree.to_svg().count("<path") == NUM_WORDS - 1
