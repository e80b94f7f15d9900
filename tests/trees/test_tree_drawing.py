import math
import re
import sys
from xml.etree import ElementTree

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.drawing import (
    compared_trees_to_svg,
    distances_to_svg,
    is_right_to_left,
    save_figure,
    tree_to_svg,
    tree_to_text,
)
from onlstm_hf.trees.induced_tree import InducedTree
from tests.helpers.requirements import library

SVG = "{http://www.w3.org/2000/svg}"
NASTY_WORDS = ["<script>alert(1)</script>", "a&b", "]]>", "\"'", "\x00\x1b[31m", "\ud800", "\uffff", "\u202e", "", " "]
TREE = InducedTree.from_nested(["the", ["old", "cat"]])


def shown_texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def pins(root):
    """Returns the points of distances, which have tooltips, unlike those of the layers' names."""
    return [circle for circle in root.findall(f"{SVG}circle") if circle.find(f"{SVG}title") is not None]


@pytest.mark.parametrize(
    ("nested", "width", "lines"),
    [
        (["the", ["old", "cat"]], 120, [" ┌──────┐", " │    ┌─┴──┐", "the  old  cat"]),
        (["a", ["b", "c", "d"], "e"], 120, ["┌─────┬─────┐", "│  ┌──┼──┐  │", "a  b  c  d  e"]),
        ([["日本語", "e\u0301"], "😀"], 120, ["     ┌─────┐", "  ┌──┴──┐  │", "日本語  e\u0301  😀"]),
        ([["the", ["old", "cat"]], "sat"], 15, ["┬─┬─the", "│ └─┬─old", "│   └─cat", "└─sat"]),
        (["\x1b[31mred", "a\nb"], 120, ["   ┌──────┐", "[31mred  a b"]),
        *(([[word, "a"], "b"], 120, [" ┌────┐", "┌┴─┐  │", f"␣{word}  a  b"]) for word in ("\u0301", "\u200b")),
    ],
)
def test_layout_of_short_and_long_sentences(nested, width, lines):
    assert tree_to_text(InducedTree.from_nested(nested), width=width).split("\n") == lines


@given(st.integers(2, 300), st.integers(40, 120), st.randoms())
def test_text_does_not_exceed_the_width(num_words, width, random):
    tree = tree_from_distances([random.random() for _ in range(num_words)], ["word"] * num_words)
    drawing = tree_to_text(tree, width=width)
    assert max(len(line) for line in drawing.split("\n")) <= width
    assert drawing.count("word") == num_words


def test_outlines_show_the_depth_of_words_too_deep_to_indent():
    tree = tree_from_distances(range(200, 0, -1), ["word"] * 200)
    lines = tree_to_text(tree).split("\n")
    assert lines[0] == "┬─word"
    assert lines[150].endswith("·151· word")


def test_svg_escapes_words():
    svg = tree_to_svg(InducedTree.from_nested(NASTY_WORDS), title="<b>&\x00")
    root = ElementTree.fromstring(svg.encode())
    assert shown_texts(svg) == ["<b>&", *NASTY_WORDS[:4], "[31m", "␣", "␣", "␣", "␣", "␣"]
    assert root.find(f".//{SVG}script") is None


@given(st.lists(st.text(st.characters()), max_size=6))
def test_svg_is_valid_xml_for_any_words(words):
    tree = tree_from_distances(range(len(words)), words)
    svg = distances_to_svg(tree, [range(len(words))], ["\x01"])
    root = ElementTree.fromstring(svg.encode())
    assert len(root.findall(f"{SVG}circle")) == 1 + len(words)


def test_svg_has_the_sentence_and_the_tree_for_screen_readers():
    root = ElementTree.fromstring(TREE.to_svg())
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert title.text == "Tree of: the old cat"
    assert "(the (old cat))" in description.text
    assert ElementTree.fromstring(TREE.to_svg(title="Heading")).find(f"{SVG}title").text == "Heading"


@pytest.mark.parametrize("words", [["i", "l", "i"], ["MWMW"] * 5, ["日本語"] * 5, ["😀😀"] * 3, ["a", "b" * 300, "c"]])
def test_words_of_an_svg_do_not_overlap_and_are_not_cut(words):
    svg = distances_to_svg(tree_from_distances(range(len(words)), words), [range(len(words))])
    root = ElementTree.fromstring(svg)
    # Upper bounds of the widths in common fonts, in em.
    em = {"i": 0.28, "l": 0.28, "M": 1.0, "W": 1.0, "日": 1.0, "本": 1.0, "語": 1.0, "😀": 1.3}
    edges = [0.0]
    for element in root.findall(f"{SVG}text"):
        if element.text in words:
            half = float(element.get("font-size")) * sum(em.get(letter, 0.65) for letter in element.text) / 2
            edges += [float(element.get("x")) - half, float(element.get("x")) + half]
    edges.append(float(root.get("width")))
    assert len(edges) == 2 * len(words) + 2
    assert edges == sorted(edges)


def test_every_layer_has_a_point_below_every_word():
    distances = numpy.array([[0.1, 0.9, 0.3], [40.0, 20.0, 30.0]])
    root = ElementTree.fromstring(distances_to_svg(TREE, distances, ["forget", "input"]))
    word_x = [element.get("x") for element in root.findall(f"{SVG}text") if element.text in TREE.words]
    assert [pin.get("cx") for pin in pins(root)] == word_x * 2
    assert [pin.find(f"{SVG}title").text for pin in pins(root)[3:]] == ["the: 40", "old: 20", "cat: 30"]
    heights = [-float(pin.get("cy")) for pin in pins(root)]
    for layer, drawn in zip(distances, (heights[:3], heights[3:]), strict=True):
        assert numpy.allclose(numpy.corrcoef(layer, drawn)[0, 1], 1)
    assert {"forget", "input", "0", "1", "20", "40"} <= {element.text for element in root.iter(f"{SVG}text")}
    assert len({pin.get("fill") for pin in pins(root)}) == 2


@given(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3))
def test_points_are_within_their_scale(distances):
    root = ElementTree.fromstring(tree_to_svg(TREE, distances))
    grid = [path.get("d") for path in root.findall(f"{SVG}path") if path.get("class") == "grid-stroke"]
    heights = [float(line.split("L")[1].split()[1]) for line in grid]
    assert 2 <= len(grid) <= 5
    assert all(min(heights) - 0.1 <= float(pin.get("cy")) <= max(heights) + 0.1 for pin in pins(root))
    assert max(heights) < float(root.get("height"))


def test_labels_of_close_distances_differ():
    texts = shown_texts(tree_to_svg(TREE, [0.9999812, 0.9999835, 0.9999821]))
    labels = [text for text in texts if text.startswith("0.9")]
    assert len(labels) >= 2 and len(set(labels)) == len(labels)


def test_non_finite_distances_get_no_point():
    root = ElementTree.fromstring(tree_to_svg(TREE, [math.inf, math.nan, 0.5]))
    assert [pin.find(f"{SVG}title").text for pin in pins(root)] == ["cat: 0.5"]


def test_wrong_numbers_of_distances_and_names_and_different_words_are_refused():
    with pytest.raises(ValueError, match="2 for 3 words"):
        tree_to_svg(TREE, [0.1, 0.2])
    with pytest.raises(ValueError, match="got 1 for 2 layers"):
        distances_to_svg(TREE, [[1, 2, 3], [1, 2, 3]], ["only one"])
    with pytest.raises(ValueError, match="induced and the gold tree have different words: 'a b'"):
        compared_trees_to_svg(TREE, {"induced": InducedTree.from_nested(["a", "b"])})


def test_figures_are_written_atomically(tmp_path, monkeypatch):
    path = tmp_path / "tree.svg"
    path.write_text("old")
    save_figure(TREE.to_svg(), path)
    assert path.read_text(encoding="utf-8") == TREE.to_svg()
    with pytest.raises(ValueError, match="must end in .svg, .png"):
        save_figure(TREE.to_svg(), tmp_path / "tree.jpeg")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        save_figure(TREE.to_svg(), tmp_path / "missing" / "tree.svg")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ImportError, match="pip install resvg-py"):
        save_figure(TREE.to_svg(), tmp_path / "tree.png")
    assert [file.name for file in tmp_path.iterdir()] == ["tree.svg"]


def test_png_figures_have_twice_the_pixels_and_a_size_limit(tmp_path):
    library("resvg_py", reason="PNG needs pip install resvg-py")
    svg = TREE.to_svg()
    save_figure(svg, tmp_path / "tree.png")
    content = (tmp_path / "tree.png").read_bytes()
    root = ElementTree.fromstring(svg)
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    size = [int.from_bytes(content[start : start + 4], "big") for start in (16, 20)]
    assert size == [2 * int(root.get("width")), 2 * int(root.get("height"))]
    with pytest.raises(ValueError, match="save it as .svg"):
        save_figure(tree_from_distances(range(1000), ["word"] * 1000).to_svg(), tmp_path / "large.png")
    assert not (tmp_path / "large.png").exists()


def test_constituents_that_are_not_gold_are_dashed():
    gold = InducedTree.from_nested([["the", "old", "cat"], ["sat", "there"]])
    induced = InducedTree.from_nested(["the", [["old", "cat"], ["sat", "there"]]])
    svg = compared_trees_to_svg(gold, {"gold again": gold, "induced": induced, "<&\x00": induced})
    root = ElementTree.fromstring(svg)
    brackets = root.findall(f"{SVG}path")
    dashed = [path.get("stroke-dasharray") is not None for path in brackets]
    assert dashed == 6 * [False] + 2 * [True, False, True, False]
    shown = shown_texts(svg)
    assert shown.count("sat") == 4
    assert "gold again: 2 of 2 constituents are gold" in shown and "induced: 1 of 3 constituents are gold" in shown
    assert f"gold: {gold.to_bracket()}; gold again" in root.find(f"{SVG}desc").text


def test_right_to_left_text_has_its_first_word_on_the_right():
    words = ["القطة", "السوداء", "نامت", "على", "N"]
    tree = InducedTree.from_nested([[words[0], words[1]], [words[2], [words[3], words[4]]]])
    root = ElementTree.fromstring(tree_to_svg(tree, distances=[1, 2, 3, 4, 5]))
    place_of = {element.text: float(element.get("x")) for element in root.iter(f"{SVG}text")}
    places = [place_of[word] for word in words]
    assert places == sorted(places, reverse=True) == [float(pin.get("cx")) for pin in pins(root)]
    paths = [
        re.fullmatch(r"M([\d.]+) .*?Q.*?H([\d.]+)Q([\d.]+) .*", path.get("d")) for path in root.iter(f"{SVG}path")
    ]
    legs = [(float(match[1]), float(match[3])) for match in paths if match]  # left and right leg of each constituent
    assert all(left < right for left, right in legs) and (places[1], places[0]) in legs


@pytest.mark.parametrize("words", [["the", "cat"], ["猫", "が"], ["the", "قط", "sat"], ["1", "2"]])
def test_other_text_has_its_first_word_on_the_left(words):
    assert not is_right_to_left(words)
    svg = tree_to_svg(tree_from_distances(range(len(words)), words))
    positions = [float(text.get("x")) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert positions == sorted(positions)
