import math
import re
from dataclasses import replace
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.text.word_alignment import mark_offsets
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.punctuation import attach_marks, raise_at_marks

THREE_PAIRS = [(0, 2), (2, 4), (4, 6)]


def with_marks(spans, text: str) -> InducedTree:
    """Attaches the marks to a tree whose words are the small letters alone."""
    offsets = [match.span() for match in re.finditer(r"(?<![a-z])[a-f](?![a-z])", text)]
    words = [text[start:end] for start, end in offsets]
    return attach_marks(parsed_tree(words, spans, [0.5] * len(words), offsets), text, mark_offsets(text, offsets))


def parsed_tree(words, spans, distances, offsets) -> InducedTree:
    tree = InducedTree.from_spans(words, spans)
    return replace(tree, distances=tuple(distances), offsets=tuple(offsets), unknown=(False,) * len(words))


@pytest.mark.parametrize(
    "spans, text, expected",
    [
        # a comma attaches to the smallest constituent with both neighbours
        ([(0, 2), (2, 4)], "a b, c d.", [["a", "b"], ",", ["c", "d"], "."]),
        # a pair attaches to the smallest constituent with the words between the marks
        ([(1, 4), (1, 3)], "a (b c) d", ["a", [["(", "b", "c", ")"], "d"]]),
        ([(2, 4)], 'a b, "c d"!?', ["a", "b", ",", ['"', "c", "d", '"'], "!", "?"]),
        ([(0, 2)], '— "a b," c d', ["—", ['"', "a", "b", ",", '"'], "c", "d"]),
        ([(0, 2), (2, 4)], "“a b — c d”", ["“", ["a", "b"], "—", ["c", "d"], "”"]),
        ([(1, 4), (2, 4)], '"a," b c (d).', ['"', "a", ",", '"', ["b", ["c", "(", "d", ")"]], "."]),
        # one word between the marks, which is no constituent
        ([(0, 2), (2, 4)], "a (b) c d", [["a", "(", "b", ")"], ["c", "d"]]),
        # a constituent crosses the pair
        ([(0, 2), (2, 4)], "a (b c) d", [["a", "(", "b"], ["c", ")", "d"]]),
        # no word between the marks
        ([(0, 2), (2, 4)], "a b () c d", [["a", "b"], "(", ")", ["c", "d"]]),
        # a single opening mark begins the largest constituent after it; other single marks attach like a comma
        ([(1, 4), (1, 3)], "a (b c d", ["a", ["(", ["b", "c"], "d"]]),
        ([(1, 4), (1, 3)], "a b c) d", ["a", [["b", "c"], ")", "d"]]),
        # pairs and single marks in one gap
        ([(1, 4), (1, 3)], "a [(b c) d", ["a", ["[", ["(", "b", "c", ")"], "d"]]),
        ([(0, 3), (1, 3)], "a [“b c]” d", [["a", ["[", "“", "b", "c", "]"]], "”", "d"]),
        ([(2, 4)], "a {[b (c} d", ["a", "{", "[", "b", ["(", "c", "}", "d"]]),
        ([], "... a b c d 🙂", ["...", "a", "b", "c", "d", "🙂"]),
        # invisible characters are no marks, but part of an emoji
        (
            [(0, 2), (2, 4)],
            "a\u200e b\u200d, \x07c\u2069\u00ad d 👩\u200d👧\u200e",
            [["a", "b"], ",", ["c", "d"], "👩\u200d👧"],
        ),
        # brackets in the spelling of the Penn Treebank
        ([(1, 4), (1, 3)], "a -LRB- b c-rrb- d -LCB-.", ["a", [["-LRB-", "b", "c", "-rrb-"], "d"], "-LCB-", "."]),
        # quotation marks open before a word and close after one
        (THREE_PAIRS, 'a b--"c d"--e f', [["a", "b"], "--", ['"', "c", "d", '"'], "--", ["e", "f"]]),
        (THREE_PAIRS, "a b \"c 'd'\" e f", [["a", "b"], ['"', "c", "'", "d", "'", '"'], ["e", "f"]]),
        (THREE_PAIRS, 'a b "c "d" " e f', [["a", "b"], ['"', "c", '"', "d", '"', '"'], ["e", "f"]]),
        (THREE_PAIRS, "a b “c „d“” e f", [["a", "b"], ["“", "c", "„", "d", "“", "”"], ["e", "f"]]),
        (THREE_PAIRS, 'a b (c "d) e f', [["a", "b"], ["(", "c", '"', "d", ")"], ["e", "f"]]),
        # inch signs, apostrophes, and closing before opening marks
        (THREE_PAIRS, 'a b" c d" e f', [["a", "b"], '"', ["c", "d"], '"', ["e", "f"]]),
        (THREE_PAIRS, "a 'b 'c d e f", [["a", "'", "b"], ["'", "c", "d"], ["e", "f"]]),
        (THREE_PAIRS, "a b) c d ( e f", [["a", "b"], ")", ["c", "d"], ["(", "e", "f"]]),
    ],
)
def test_marks_attach_as_in_treebanks(spans, text, expected):
    assert with_marks(spans, text).to_nested() == expected


@pytest.mark.parametrize(
    "pair",
    [
        *("()", "[]", "{}", "（）", "「」", "“”", "‘’", "„“", "„”", "‚‘", "«»", "»«", "»»", "‹›", "›‹", "””"),
        *("¿?", "¡!", "¡ !!!", '""', "''", "`'", "`` ''", '`` "', "'' ''", "**", "__", "-LRB- -RRB-", "-lsb- ]"),
    ],
)
def test_opening_marks_are_paired(pair):
    opening, closing = pair.split() if " " in pair else pair
    expected = [["a", "b"], [opening, "c", "d", closing], ["e", "f"]]
    for text in (f"a b {opening}c d{closing} e f", f"a b {opening} c d {closing} e f", f"a b{opening}c d{closing}e f"):
        assert with_marks(THREE_PAIRS, text).to_nested() == expected


def test_marks_have_offsets_and_no_distance():
    tree = with_marks([], " a, b! ")
    assert tree.words == ("a", ",", "b", "!")
    assert tree.offsets == ((1, 2), (2, 3), (4, 5), (5, 6))
    assert [math.isnan(distance) for distance in tree.distances] == [False, True, False, True]
    record = tree.to_record(" a, b! ")
    assert record["distances"] == [0.5, None, 0.5, None]
    assert record["spans"] == [{"text": "a, b!", "start": 1, "end": 6, "word_start": 0, "word_end": 4}]


@st.composite
def marked_sentences(draw):
    """Draws a tree, its text with single and paired marks, and the offsets and words of each pair."""
    distances = draw(st.lists(st.floats(0, 1), max_size=7))
    words = [f"w{number}" for number in range(len(distances))]
    spans = tree_from_distances(distances, words, draw(st.sampled_from(["right", "none"]))).spans()
    text, offsets, pairs = "", [], []
    kinds, opened = draw(st.permutations(["()", "“”", "«»", '""', "**", "„“", "¿?"])), []
    for gap in range(len(words) + 1):
        while opened and (gap == len(words) or draw(st.booleans())):
            closing, place, first = opened.pop()
            pairs.append((place, len(text), first, gap))
            text += closing
        text += draw(st.sampled_from(["", ",", "... ", " —", "}", " [", "🙂", "()"])) + " "
        while kinds and gap < len(words) and draw(st.booleans()):
            opening, closing = kinds.pop()
            opened.append((closing, len(text), gap))
            text += opening
        if gap < len(words):
            offsets.append((len(text), len(text) + len(words[gap])))
            text += words[gap]
    kept = [span for span in spans if draw(st.booleans())]
    return parsed_tree(words, kept, distances, offsets), text, pairs


@given(marked_sentences())
def test_pairs_are_siblings_and_attaching_keeps_the_constituents(sentence):
    tree, text, pairs = sentence
    marks = mark_offsets(text, tree.offsets)
    attached = attach_marks(tree, text, marks)
    assert list(attached.offsets) == sorted([*tree.offsets, *(place for gap in marks for place in gap)])
    assert [text[start:end] for start, end in attached.offsets] == list(attached.words)

    leaf_at = {start: leaf for leaf, (start, _) in enumerate(attached.offsets)}
    word_at = [leaf_at[start] for start, _ in tree.offsets]

    def words_in(start, end):
        inside = [number for number, leaf in enumerate(word_at) if start <= leaf < end]
        return (inside[0], inside[-1] + 1) if inside else None

    def parent(leaf):
        around = [(start, end) for start, end in attached.spans() if start <= leaf < end]
        return min(around, key=lambda span: span[1] - span[0])

    spans = [words_in(*span) for span in attached.spans()]
    assert [span for span in spans if span and span[1] - span[0] > 1] == tree.spans()
    for opening, closing, first, last in pairs:
        if not any(start < first < end < last or first < start < last < end for start, end in tree.spans()):
            assert parent(leaf_at[opening]) == parent(leaf_at[closing])
            around = [span for span in tree.spans() if span[0] <= first and last <= span[1]]
            smallest = min(around, key=lambda span: span[1] - span[0], default=(0, 1))
            assert words_in(*parent(leaf_at[opening])) == smallest


def test_distances_after_marks_rise_by_standard_deviations():
    distances = [0.1, 0.2, 0.4, 0.3]
    raised = raise_at_marks(distances, [True, False, True, False], strength=2)
    assert raised == pytest.approx([0.1, 0.2, 0.4 + 2 * pstdev(distances), 0.3])
    assert raise_at_marks([0.5], [True]) == [0.5]
    assert raise_at_marks([], []) == []
