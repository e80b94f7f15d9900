"""Toy English: sentences, trees and corpora."""

import pytest

from onlstm_hf.utils.files import fingerprint
from tests.helpers.requirements import library
from training import toy_english
from training.toy_english import GRAMMAR, LEXICON, generate_toy_treebank, tree_words, write_toy_corpus


def test_the_same_seed_gives_the_same_sentences_on_every_platform():
    assert generate_toy_treebank(2, max_words=8) == [
        "(S (NP (DT the) (NNS dogs)) (VP (VBP run) (PP (IN in) (NP (DT the) (NNS forests)))))",
        "(S (NP (DT some) (NNS boys)) (VP (VBP work)))",
    ]
    assert fingerprint(generate_toy_treebank(2000)) == "5b3936a65660252b"
    assert generate_toy_treebank(50, seed=3) == generate_toy_treebank(80, seed=3)[:50] != generate_toy_treebank(50)


def test_sentences_are_distinct_and_have_the_requested_lengths():
    sentences = [tuple(tree_words(tree)) for tree in generate_toy_treebank(2000)]
    assert len(set(sentences)) == len(sentences)
    assert min(map(len, sentences)) == 3 and max(map(len, sentences)) == 20
    assert max(len(tree_words(tree)) for tree in generate_toy_treebank(200, max_words=6)) == 6


def test_every_symbol_of_the_grammar_is_defined_and_used():
    expansions = " ".join(f"{pattern} {' '.join(rules)}" for pattern, rules in GRAMMAR.items())
    used = {symbol.split(".")[0] for symbol in expansions.split()}
    defined = {pattern.split(".")[0] for pattern in (*GRAMMAR, *LEXICON)}
    assert used == defined


def test_impossible_requests_are_refused_and_end(monkeypatch):
    with pytest.raises(ValueError, match="found only 0 different sentences of 3 to 2 words"):
        generate_toy_treebank(1, max_words=2)
    with pytest.raises(ValueError, match="each split needs a sentence"):
        toy_english.write_toy_corpus("no-such-folder", num_train=0)
    monkeypatch.setattr(toy_english, "GRAMMAR", {"S": {"NNP V-sleep.n PP": 1}, "PP": {"TO NNP": 1}})
    with pytest.raises(ValueError, match=f"found only {4 * 12 * 4} different sentences"):
        generate_toy_treebank(1000)


def test_recursion_ends_within_the_height_limit(monkeypatch):
    monkeypatch.setattr(toy_english, "GRAMMAR", {"S": {"NNP MD TO": 1, "NNP S": 1000}})
    trees = generate_toy_treebank(20)
    heights = [max(tree[:end].count("(") - tree[:end].count(")") for end in range(len(tree))) for tree in trees]
    assert max(heights) == toy_english.MAX_HEIGHT


def test_the_corpus_loads_as_a_dataset_with_three_splits(tmp_path):
    datasets = library("datasets")
    folder = write_toy_corpus(tmp_path / "toy", num_train=300, num_validation=40, num_test=50, seed=1)
    corpus = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in corpus.items()} == {"train": 300, "validation": 40, "test": 50}
    assert corpus["train"].column_names == ["text", "tree"]
    texts = [row["text"] for rows in corpus.values() for row in rows]
    assert len(set(texts)) == 390
    for row in corpus["test"]:
        assert row["text"].split() == tree_words(row["tree"])


def test_another_or_changed_corpus_is_not_loaded_from_the_cache(tmp_path):
    datasets = library("datasets")
    for name, num_train in (("a/corpus", 30), ("b/corpus", 40), ("a/corpus", 50)):
        folder = write_toy_corpus(tmp_path / name, num_train, num_validation=4, num_test=5)
        corpus = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        assert len(corpus["train"]) == num_train


def test_held_out_sentences_do_not_depend_on_the_size_of_the_training_split(tmp_path):
    small = write_toy_corpus(tmp_path / "small", num_train=10, num_validation=20, num_test=30)
    large = write_toy_corpus(tmp_path / "large", num_train=100, num_validation=20, num_test=30)
    for name in ("test.jsonl", "validation.jsonl"):
        assert (small / name).read_bytes() == (large / name).read_bytes()
    assert (large / "train.jsonl").read_bytes().startswith((small / "train.jsonl").read_bytes())
