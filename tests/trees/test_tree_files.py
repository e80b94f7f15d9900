"""Files of distances and of ranks: round trips, and errors for damaged files."""

import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.rank_files import SUFFIX, read_rank_file, read_trees_of_text, write_rank_file
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file, rounded, write_tree_file

SENTENCES = [("the", "old", "cat", "sleeps"), (), ("él", 'said"'), ("one",)]
BY_LAYER = {
    0: [[0.1, 0.5000001, 0.5000002, 0.25], [], [1.0, 0.0], [0.125]],
    1: [[0.99999988, 0.9999999, 0.3, 0.3], [], [0.5, 0.5], [2.0]],
}
STORED = SentenceDistances(SENTENCES, BY_LAYER, parse_layer=1, model={"seed": 7})
# Line ends of `str.splitlines`, but not of a file of trees.
LINE_SEPARATORS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def write(path, stored=STORED):
    (write_rank_file if path.name.endswith(SUFFIX) else write_tree_file)(path, stored)
    return path


@pytest.fixture(params=["trees.jsonl.xz", f"text{SUFFIX}"])
def path(request, tmp_path):
    return write(tmp_path / request.param)


def test_all_rules_rebuild_the_trees(path):
    read = read_trees_of_text(path, SENTENCES)
    assert (read.sentences, read.parse_layer, read.model, read.branching_bias) == (SENTENCES, 1, {"seed": 7}, None)
    for layer, distances in BY_LAYER.items():
        for bias in ("right", "none", "ranges"):
            expected = [tree_from_distances(*pair, bias) for pair in zip(distances, SENTENCES, strict=True)]
            assert read.trees(layer, bias) == STORED.trees(layer, bias) == expected
    assert read.trees() == read.trees(1)


def test_distances_without_a_layer_and_the_branching_bias_are_kept(path):
    write(path, SentenceDistances(SENTENCES, {None: BY_LAYER[0]}, branching_bias="none"))
    read = read_trees_of_text(path, SENTENCES)
    expected = [tree_from_distances(*pair, "none") for pair in zip(BY_LAYER[0], SENTENCES, strict=True)]
    assert read.branching_bias == "none" and read.trees(branching_bias="right") == expected
    assert read.parse_layer is None and list(read.by_layer) == [None]
    with pytest.raises(ValueError, match="no distances of layer 1; layers: None"):
        read.trees(1)


def test_equal_content_gives_equal_bytes_under_any_name(path):
    assert write(path.with_name(f"another-{path.name}")).read_bytes() == path.read_bytes()


@given(st.lists(st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.5, 0.5 + 2**-24, 0.1]), max_size=12))
def test_rounding_keeps_order_and_equality(distances):
    short = rounded(distances)
    for a, b in zip(distances, short, strict=True):
        for c, d in zip(distances, short, strict=True):
            assert (a < c) == (b < d)
    assert short == pytest.approx(distances, rel=1e-3)


def test_distances_have_four_digits_if_these_distinguish_them():
    assert rounded([0.123456789, 0.2, 0.3000001, 0.30000012]) == [0.1235, 0.2, 0.3000001, 0.30000012]


@pytest.mark.parametrize("character", LINE_SEPARATORS)
def test_words_and_metadata_may_contain_line_separators(tmp_path, character):
    stored = SentenceDistances([(f"the{character}cat", character)], {0: [[0.1, 0.3]]}, 0, {"text": f"a{character}b"})
    write_tree_file(tmp_path / "trees", stored)
    assert read_tree_file(tmp_path / "trees") == stored


@given(st.lists(st.lists(st.floats(-5, 5) | st.integers(0, 3), max_size=9), max_size=5))
def test_ranks_keep_the_order_of_the_distances(tmp_path_factory, by_sentence):
    path = tmp_path_factory.mktemp("ranks") / "text.ranks.xz"
    sentences = [tuple(f"w{index}" for index in range(len(distances))) for distances in by_sentence]
    write_rank_file(path, SentenceDistances(sentences, {None: by_sentence}))
    ranks = read_rank_file(path, sentences).by_layer[None]
    for distances, of_sentence in zip(by_sentence, ranks, strict=True):
        order = sorted(set(distances))
        assert of_sentence == [order.index(distance) for distance in distances]


def test_ranks_of_long_sentences_are_kept_without_the_words(tmp_path):
    words, distances = ("secret",) * 400, [float(index * 7 % 400) for index in range(400)]
    path = tmp_path / "long.ranks.xz"
    write_rank_file(path, SentenceDistances([words], {None: [distances]}))
    assert read_rank_file(path, [words]).by_layer[None] == [distances]
    assert b"secret" not in lzma.decompress(path.read_bytes())


@pytest.mark.parametrize("other", [SENTENCES[::-1], SENTENCES[:-1], [("the", "old", "dog", "sleeps"), *SENTENCES[1:]]])
def test_a_different_text_is_refused(path, other):
    with pytest.raises(ValueError, match="has the trees of another text"):
        read_trees_of_text(path, other)


def flipped(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damaged",
    [
        *(lambda content, end=end: content[:end] for end in (0, 10, -1)),
        lambda content: content[: len(content) // 2],
        flipped,
        *(lambda _, other=other: other for other in (b"the cat", lzma.compress(b"the cat"), lzma.compress(b"[1]\n"))),
    ],
)
def test_a_damaged_or_missing_file_is_refused(path, damaged):
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(ValueError, match="is no file of .*, or damaged"):
        read_trees_of_text(path, SENTENCES)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_trees_of_text(path, SENTENCES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"version": 9}, "of version 9; the latest known one is"), ({"format": "x"}, "its format is 'x'")],
)
def test_another_version_or_format_is_refused(path, changes, message):
    header, _, content = lzma.decompress(path.read_bytes()).partition(b"\n")
    path.write_bytes(lzma.compress(json.dumps(json.loads(header) | changes).encode() + b"\n" + content))
    with pytest.raises(ValueError, match=message):
        read_trees_of_text(path, SENTENCES)
