"""Files of ranks: they make the trees of the distances, hold no word, and know their text."""

import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.rank_files import read_rank_file, read_trees_of_text, write_rank_file
from onlstm_hf.trees.tree_files import SentenceDistances, write_tree_file

SENTENCES = [("the", "old", "cat", "sleeps"), (), ("él", 'said"'), ("one",)]
BY_LAYER = {
    0: [[0.1, 0.5000001, 0.5000002, 0.25], [], [1.0, 0.0], [0.125]],
    1: [[0.99999988, 0.3, 0.3, 1e-9], [], [0.5, 0.5], [2.0]],
}
BIASES = ("right", "none", "ranges")


@pytest.fixture
def stored():
    return SentenceDistances(SENTENCES, BY_LAYER, parse_layer=1, model={"seed": 7})


@pytest.fixture
def path(tmp_path, stored):
    path = tmp_path / "text.ranks.xz"
    write_rank_file(path, stored)
    return path


def test_every_rule_makes_the_trees_of_the_distances(path, stored):
    read = read_rank_file(path, SENTENCES)
    assert (read.sentences, read.parse_layer, read.model, read.branching_bias) == (SENTENCES, 1, {"seed": 7}, None)
    for layer in BY_LAYER:
        for bias in BIASES:
            assert read.trees(layer, bias) == stored.trees(layer, bias)


@given(st.lists(st.lists(st.floats(-5, 5) | st.integers(0, 3), max_size=9), max_size=5))
def test_ranks_have_the_order_of_the_distances(tmp_path_factory, by_sentence):
    path = tmp_path_factory.mktemp("ranks") / "text.ranks.xz"
    sentences = [tuple(f"w{index}" for index in range(len(distances))) for distances in by_sentence]
    write_rank_file(path, SentenceDistances(sentences, {None: by_sentence}))
    ranks = read_rank_file(path, sentences).by_layer[None]
    for distances, own in zip(by_sentence, ranks, strict=True):
        assert sorted(set(own)) == list(range(len(set(own))))
        for a, c in zip(distances, own, strict=True):
            for b, d in zip(distances, own, strict=True):
                assert (a < b) == (c < d)


def test_long_sentences_keep_their_ranks(tmp_path):
    words, distances = tuple("abcdefgh" * 50), [float(index * 7 % 400) for index in range(400)]
    write_rank_file(tmp_path / "long.ranks.xz", SentenceDistances([words], {None: [distances]}))
    assert read_rank_file(tmp_path / "long.ranks.xz", [words]).by_layer[None] == [distances]


def test_trees_of_a_rule_keep_it(tmp_path):
    stored = SentenceDistances(SENTENCES, {None: BY_LAYER[0]}, branching_bias="none")
    for name, write in (("text.ranks.xz", write_rank_file), ("trees.jsonl.xz", write_tree_file)):
        write(tmp_path / name, stored)
        read = read_trees_of_text(tmp_path / name, SENTENCES)
        expected = [tree_from_distances(*pair, "none") for pair in zip(BY_LAYER[0], SENTENCES, strict=True)]
        assert read.branching_bias == "none" and read.trees(branching_bias="right") == expected


def test_the_words_are_not_in_the_file_and_equal_content_gives_equal_bytes(tmp_path, path, stored):
    content = lzma.decompress(path.read_bytes())
    assert not any(word.encode() in content for words in SENTENCES for word in words)
    write_rank_file(tmp_path / "another.ranks.xz", stored)
    assert (tmp_path / "another.ranks.xz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("other", [SENTENCES[::-1], SENTENCES[:-1], [("the", "old", "dog", "sleeps"), *SENTENCES[1:]]])
def test_another_text_is_refused(tmp_path, path, stored, other):
    write_tree_file(tmp_path / "trees.jsonl.xz", stored)
    for name in (path, tmp_path / "trees.jsonl.xz"):
        with pytest.raises(ValueError, match="has the trees of another text"):
            read_trees_of_text(name, other)


@pytest.mark.parametrize("part", [0, 10, 0.5, -1])
def test_a_file_that_was_cut_off_is_refused(path, part):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part) if isinstance(part, float) else part])
    with pytest.raises(ValueError, match="is no file of ranks, or damaged"):
        read_rank_file(path, SENTENCES)


def test_other_files_versions_and_damage_are_refused(tmp_path, path, stored):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_rank_file(tmp_path / "missing.ranks.xz", SENTENCES)
    write_tree_file(tmp_path / "trees.ranks.xz", stored)
    with pytest.raises(ValueError, match="is no file of ranks"):
        read_rank_file(tmp_path / "trees.ranks.xz", SENTENCES)
    header, _, content = lzma.decompress(path.read_bytes()).partition(b"\n")
    for changes, message in (
        ({"version": 9}, "of version 9"),
        ({"layers": [0]}, "is damaged"),
        ({"bytes": 3}, "is damaged"),
    ):
        path.write_bytes(lzma.compress(json.dumps(json.loads(header) | changes).encode() + b"\n" + content))
        with pytest.raises(ValueError, match=message):
            read_rank_file(path, SENTENCES)
