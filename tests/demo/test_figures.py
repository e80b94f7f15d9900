from xml.etree import ElementTree

import pytest

from onlstm_hf import InducedTree
from onlstm_hf.demo.figures import TreePanel, deciding_column, pair_figure, sentence_figure
from onlstm_hf.demo.sentence_analysis import PairComparison, SentenceReading
from onlstm_hf.trees.treebank import GoldTree

WORDS = ("the", "old", "cat", "sat")
INDUCED = InducedTree.from_spans(WORDS, [(0, 3), (1, 3)])


def elements(svg, tag, kind=None):
    found = ElementTree.fromstring(svg).findall(f".//{{*}}{tag}")
    return [element for element in found if kind is None or element.get("class") == kind]


def figure(panels, surprisals=(1.0, 2.0, 3.0, 40.0), is_unknown=(False,) * 4):
    return sentence_figure(WORDS, panels, {"layer 1": (0.1, 0.2, 0.3, 0.4)}, surprisals, is_unknown)


def test_gold_and_induced_trees_stand_in_the_same_columns_with_labels_and_lines_that_tell_what_agrees():
    gold = GoldTree(WORDS, (("S", 0, 4), ("NP", 0, 3)))
    svg = figure([TreePanel("gold tree", gold, others=INDUCED), TreePanel("induced", INDUCED, gold)])
    texts = [element.text for element in elements(svg, "text")]
    assert {"S", "NP", "gold tree", "induced", "in both trees", "only induced"} <= set(texts)
    places = {}
    for element in elements(svg, "text"):
        if element.text in WORDS:
            places.setdefault(element.text, []).append(element.get("x"))
    assert all(len(of_word) == 2 and len(set(of_word)) == 1 for of_word in places.values())
    dashes = {
        (node.get("data-panel"), node.get("data-start"), node.get("data-end")): path.get("stroke-dasharray")
        for node in elements(svg, "g", "node")
        for path in node.findall(".//{*}path")
    }
    assert dashes == {
        ("0", "0", "4"): None,
        ("0", "0", "3"): None,
        ("1", "0", "4"): None,
        ("1", "0", "3"): None,
        ("1", "1", "3"): "6 3",
    }


def test_gold_constituents_that_were_not_found_have_lines_of_their_own():
    gold = GoldTree(WORDS, (("NP", 0, 2),))
    svg = figure([TreePanel("gold tree", gold, others=INDUCED)])
    assert "only gold" in [element.text for element in elements(svg, "text")]
    assert "2 3" in [element.get("stroke-dasharray") for element in elements(svg, "path")]


def test_pins_of_surprisal_begin_at_0_and_unknown_words_are_marked():
    svg = figure([], surprisals=(10.0, 11.0, 12.0, 13.0), is_unknown=(False, True, False, False))
    texts = [element.text for element in elements(svg, "text")]
    assert "0" in texts[texts.index("surprisal") :]
    assert "unknown: read as <unk>, whose surprisal is shown" in texts
    words = elements(svg, "g", "word")
    assert [bool(list(word.findall(".//{*}path"))) for word in words] == [False, True, False, False]
    assert "unknown: read as <unk>, whose surprisal is shown" not in [e.text for e in elements(figure([]), "text")]


def test_words_are_shaded_by_their_surprisals():
    opacities = [
        float(rectangle.get("fill-opacity"))
        for word in elements(figure([TreePanel("", INDUCED)]), "g", "word")
        for rectangle in word.findall(".//{*}rect")
    ]
    assert opacities == sorted(opacities) and opacities[0] < 0.05 and opacities[-1] == 0.5


def pair(first, second, first_bits, second_bits, ends=(1.0, 1.0)):
    readings = [
        SentenceReading(tuple(text.split()), bits, end, (False,) * len(bits))
        for text, bits, end in ((first, first_bits, ends[0]), (second, second_bits, ends[1]))
    ]
    return PairComparison(*readings, differs_in_unknown_word=False)


def test_the_word_that_does_most_for_the_preferred_sentence_decides():
    better = pair("they are here", "they is here", (1.0, 2.0, 3.0), (1.0, 9.0, 2.0))
    assert better.difference == pytest.approx(6)
    assert [column.difference for column in better.columns()] == pytest.approx([0, 7, -1, 0])
    assert deciding_column(better, better.columns()) == 1
    worse = pair("they are here", "they is here", (1.0, 2.0, 9.0), (1.0, 3.0, 2.0))
    assert deciding_column(worse, worse.columns()) == 2
    tie = pair("they are", "they is", (1.0, 2.0), (1.0, 2.0))
    assert deciding_column(tie, tie.columns()) is None
    assert "decides" in pair_figure(better, "a model") and "decides" not in pair_figure(tie, "a model")


def test_the_sentences_of_a_pair_have_one_scale_and_the_same_columns():
    svg = pair_figure(pair("the old cat sat", "the cat sat", (1.0, 2.0, 3.0, 4.0), (1.0, 5.0, 30.0)), "a model")
    words = {}
    for element in elements(svg, "text"):
        if element.text in (*WORDS, "(end)"):
            words.setdefault(element.text, []).append(element.get("x"))
    assert {word: len(set(places)) for word, places in words.items()} == dict.fromkeys([*WORDS, "(end)"], 1)
    assert [len(words[word]) for word in WORDS] == [2, 1, 2, 2]
    titles = [title.text for pin in elements(svg, "g", "pin") for title in pin.findall(".//{*}title")]
    assert "sat: 30.00 bits" in titles and "+26.00 bits" in titles and "-2.00 bits" in titles
