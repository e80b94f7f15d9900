"""Files of distances: the trees that are made from one are those that went into it, and damage is noticed."""

import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file, rounded, write_tree_file

BIASES = ("right", "none", "ranges")
SENTENCES = [("the", "old", "cat", "sleeps"), (), ("él", 'said"'), ("one",)]
BY_LAYER = {
    0: [[0.1, 0.5000001, 0.5000002, 0.25], [], [1.0, 0.0], [0.125]],
    1: [[0.99999988, 0.9999999, 0.3, 1e-9], [], [0.5, 0.5], [2.0]],
}


@pytest.fixture
def stored():
    return SentenceDistances(SENTENCES, BY_LAYER, parse_layer=1, model={"seed": 7})


@pytest.fixture
def path(tmp_path, stored):
    path = tmp_path / "trees.jsonl.xz"
    write_tree_file(path, stored)
    return path


def test_all_trees_of_all_rules_are_read_back(path, stored):
    read = read_tree_file(path)
    assert (read.sentences, read.parse_layer, read.model) == (SENTENCES, 1, {"seed": 7})
    for layer, distances in BY_LAYER.items():
        for bias in BIASES:
            expected = [tree_from_distances(*pair, bias) for pair in zip(distances, SENTENCES, strict=True)]
            assert read.trees(layer, bias) == stored.trees(layer, bias) == expected
    assert read.trees() == read.trees(1)


def test_a_model_with_the_same_distances_for_all_layers_has_one_entry(tmp_path):
    write_tree_file(tmp_path / "trees", SentenceDistances(SENTENCES, {None: BY_LAYER[0]}))
    read = read_tree_file(tmp_path / "trees")
    assert read.parse_layer is None and list(read.by_layer) == [None]
    assert read.trees() == [tree_from_distances(*pair) for pair in zip(BY_LAYER[0], SENTENCES, strict=True)]
    with pytest.raises(ValueError, match="no distances of layer 1; layers: None"):
        read.trees(1)


@given(st.lists(st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.5, 0.5 + 2**-24, 0.1]), max_size=12))
def test_rounding_keeps_the_order_and_what_is_equal(distances):
    short = rounded(distances)
    for a, b in zip(distances, short, strict=True):
        for c, d in zip(distances, short, strict=True):
            assert (a < c) == (b < d)
    assert short == pytest.approx(distances, rel=1e-3)


def test_distances_have_four_digits_where_these_tell_them_apart(path):
    rows = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    assert rounded([0.123456789, 0.2, 0.3000001, 0.30000012]) == [0.1235, 0.2, 0.3000001, 0.30000012]
    assert rows[1]["distances"][0] == BY_LAYER[0][0]
    assert rows[1]["words"] == list(SENTENCES[0])


# `str.splitlines` takes these for the end of a line, and a file of trees does not.
LINE_SEPARATORS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("character", LINE_SEPARATORS)
def test_words_and_notes_may_have_characters_that_end_lines_elsewhere(tmp_path, character):
    words = (f"the{character}cat", character, "sat")
    stored = SentenceDistances([words], {0: [[0.1, 0.3, 0.2]]}, 0, {"text": f"a{character}b"})
    write_tree_file(tmp_path / "trees", stored)
    read = read_tree_file(tmp_path / "trees")
    assert read.sentences == [words] and read.model == stored.model


def test_equal_content_gives_equal_bytes_under_any_name(tmp_path, path, stored):
    write_tree_file(tmp_path / "another", stored)
    assert (tmp_path / "another").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("part", [0, 10, 0.5, -1])
def test_a_file_that_was_cut_off_is_refused(path, part):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part) if isinstance(part, float) else part])
    with pytest.raises(ValueError, match="is no file of trees, or damaged"):
        read_tree_file(path)


def test_another_file_is_refused(tmp_path):
    for name, content in {
        "text": b"the cat",
        "packed": lzma.compress(b"the cat"),
        "list": lzma.compress(b"[1]\n"),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is no file of trees, or damaged"):
            read_tree_file(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_tree_file(tmp_path / "nothing")


def changed(lines, index, **values):
    return [line | values if number == index else line for number, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: changed(lines, 0, version=3), "of version 3; this package reads 1 to 2"),
        (lambda lines: changed(lines, 0, format="x"), "its format is 'x'"),
        (lambda lines: lines[:-1], "damaged: it has 3 sentences instead of 4"),
        (lambda lines: changed(lines, 0, layers=[0]), "sentence 1 needs words, and distances of 1 layers"),
        (lambda lines: changed(lines, 0, parse_layer=5), "no distances of its layer 5"),
        (lambda lines: changed(lines, 3, words=["a"]), "sentence 3 needs a finite distance for each of its 1 words"),
        (lambda lines: changed(lines, 4, distances=[[float("nan")], [1]]), "sentence 4 needs a finite distance"),
        (lambda lines: changed(lines, 4, distances=[["1"], [1]]), "damaged"),
        (lambda lines: changed(lines, 4, words=None), "damaged"),
    ],
)
def test_content_that_does_not_fit_is_refused(path, change, message):
    lines = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, change(lines))).encode()))
    with pytest.raises(ValueError, match=message):
        read_tree_file(path)
