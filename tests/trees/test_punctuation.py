import math
from dataclasses import replace
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.text.word_alignment import mark_offsets
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.punctuation import attach_marks, raise_at_marks


def with_marks(words: list[str], spans, text: str) -> InducedTree:
    offsets, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        offsets.append((start, end))
    tree = InducedTree.from_spans(words, spans, [0.5] * len(words))
    tree = replace(tree, offsets=tuple(offsets), unknown=(False,) * len(words))
    return attach_marks(tree, text, mark_offsets(text, offsets))


@pytest.mark.parametrize(
    "spans, text, expected",
    [
        # a comma hangs on the smallest constituent that has both its neighbours
        ([(0, 2), (2, 4)], "a b, c d.", [["a", "b"], ",", ["c", "d"], "."]),
        # an opening mark begins the largest constituent that begins after it
        ([(1, 4), (1, 3)], "a (b c) d", ["a", ["(", ["b", "c"], ")", "d"]]),
        ([(2, 4)], 'a b, "c d"!?', ["a", "b", ",", ['"', "c", "d"], '"', "!", "?"]),
        ([(0, 2), (2, 4)], "“a b — c d”", ["“", ["a", "b"], "—", ["c", "d"], "”"]),
        # a single word is no constituent
        ([(0, 2), (2, 4)], "a (b) c d", [["a", "(", "b"], ")", ["c", "d"]]),
        ([], "... a b c d 🙂", ["...", "a", "b", "c", "d", "🙂"]),
    ],
)
def test_marks_hang_as_in_treebanks(spans, text, expected):
    assert with_marks(["a", "b", "c", "d"], spans, text).to_nested() == expected


def test_marks_have_places_and_no_distance():
    tree = with_marks(["a", "b"], [], " a, b! ")
    assert tree.words == ("a", ",", "b", "!")
    assert tree.offsets == ((1, 2), (2, 3), (4, 5), (5, 6))
    assert [math.isnan(distance) for distance in tree.distances] == [False, True, False, True]
    record = tree.to_record(" a, b! ")
    assert record["distances"] == [0.5, None, 0.5, None]
    assert record["spans"] == [{"text": "a, b!", "start": 1, "end": 6, "word_start": 0, "word_end": 4}]


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["", ",", " (", ")", "“", "...", "”"])), max_size=8))
def test_without_its_marks_the_tree_is_as_before(parts):
    words = [f"w{number}" for number in range(len(parts))]
    text, offsets = "", []
    for word, (_, mark) in zip(words, parts, strict=True):
        text += mark + " "
        offsets.append((len(text), len(text) + len(word)))
        text += word
    tree = tree_from_distances([distance for distance, _ in parts], words)
    tree = replace(tree, offsets=tuple(offsets), unknown=(False,) * len(words))
    attached = attach_marks(tree, text, mark_offsets(text, offsets))
    word_leaves = [leaf for leaf, word in enumerate(attached.words) if word.startswith("w")]
    index = {leaf: number for number, leaf in enumerate(word_leaves)}
    kept = set()
    for start, end in attached.spans():
        inside = [index[leaf] for leaf in range(start, end) if leaf in index]
        if len(inside) > 1:
            kept.add((inside[0], inside[-1] + 1))
    assert kept == set(tree.spans())


def test_distances_rise_at_marks_by_standard_deviations_of_the_sentence():
    distances = [0.1, 0.2, 0.4, 0.3]
    raised = raise_at_marks(distances, [True, False, True, False], strength=2)
    assert raised == pytest.approx([0.1, 0.2, 0.4 + 2 * pstdev(distances), 0.3])
    assert raise_at_marks([0.5], [True]) == [0.5]
    assert raise_at_marks([], []) == []
