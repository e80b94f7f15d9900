import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from onlstm_hf import build_word_tokenizer, tree_from_distances
from onlstm_hf.demo.sentence_analysis import (
    analyze_sentences,
    compare_pair,
    read_sentences,
)
from onlstm_hf.demo.text_input import read_gold_tree, spell_gold_tree, split_text
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.trees.baselines import baseline_trees
from onlstm_hf.trees.treebank import GoldTree
from tests.helpers.tiny_models import MODEL_TYPES

WORDS = ["<eos>", "<unk>", "the", "cat", "sat", "on", "mat", "old", "dog", "saw", "dogs", "it", "a"]
TOKENIZER = build_word_tokenizer(vocabulary=WORDS, pad_token="<eos>")
SENTENCES = ["the old dog that saw it sat", "it sat", "the cat saw the dogs"]
LABELLED = "( (S (NP (DT The) (JJ old) (NN cat)) (VP (VBD saw) (NP (DT the) (NNS dogs))) (. .)) )"


@pytest.fixture(scope="module", params=MODEL_TYPES)
def model(request):
    return MODEL_TYPES[request.param].make(eos_token_id=0)


@pytest.fixture(scope="module")
def onlstm():
    return MODEL_TYPES["onlstm"].make(eos_token_id=0)


def log_probabilities(model, ids):
    """The definition: the logarithm of each token's probability after one <eos> and all before it."""
    with torch.no_grad():
        logits = model(torch.tensor([[0, *ids]])).logits[0].double()
    return logits.log_softmax(-1)[range(len(ids) + 1), [*ids, 0]].tolist()


def test_surprisal_is_minus_the_base_2_logarithm_of_a_words_probability(model):
    for sentence, reading in zip(SENTENCES, read_sentences(model, TOKENIZER, SENTENCES), strict=True):
        *words, end = log_probabilities(model, TOKENIZER(sentence)["input_ids"])
        assert reading.words == tuple(sentence.split())
        assert reading.surprisals == pytest.approx([-value / math.log(2) for value in words], abs=1e-4)
        assert reading.end_surprisal == pytest.approx(-end / math.log(2), abs=1e-4)
        (score,) = score_sentences(model, TOKENIZER, [sentence])
        assert -math.log(2) * reading.total_surprisal == pytest.approx(score.total().total_log_likelihood, abs=1e-4)


def test_the_surprisal_of_a_word_is_the_sum_of_its_tokens(onlstm):
    letters = {letter: index for index, letter in enumerate(["<eos>", "<unk>", *"abcdehost"])}
    backend = Tokenizer(models.BPE(letters, [], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>")
    (reading,) = read_sentences(onlstm, tokenizer, ["the cats xo"])
    *letters, _ = log_probabilities(onlstm, tokenizer("the cats xo")["input_ids"])
    expected = [-sum(letters[start:end]) / math.log(2) for start, end in ((0, 3), (3, 7), (7, 9))]
    assert reading.words == ("the", "cats", "xo")
    assert reading.surprisals == pytest.approx(expected, abs=1e-4)
    assert reading.unknown_words == ("xo",)


def test_words_without_a_token_of_their_own_are_named(onlstm):
    (reading,) = read_sentences(onlstm, TOKENIZER, ["the zebra saw a zebu"])
    assert reading.unknown_words == ("zebra", "zebu")


@pytest.mark.parametrize("layer, branching_bias", [(None, "right"), (0, "none"), (1, "ranges")])
def test_the_chosen_layer_and_bias_make_the_tree_and_every_layer_is_measured(onlstm, layer, branching_bias):
    analyses = analyze_sentences(onlstm, TOKENIZER, SENTENCES, layer, branching_bias)
    for sentence, analysis in zip(SENTENCES, analyses, strict=True):
        chosen = onlstm.config.parse_layer if layer is None else layer
        distances = [tree.distances for tree in analysis.trees_by_layer.values()]
        assert len(distances) == onlstm.config.num_hidden_layers
        assert analysis.tree == tree_from_distances(distances[chosen], sentence.split(), branching_bias)
        for index, of_layer in enumerate(distances):
            expected = onlstm.parse([sentence], TOKENIZER, layer=index)[0].distances
            assert of_layer == pytest.approx(expected, abs=1e-6)


def test_the_model_reads_sentences_once_for_surprisals_and_all_trees(model, monkeypatch):
    lengths, read = [], model.model.forward
    monkeypatch.setattr(model.model, "forward", lambda *a, **k: lengths.append(k["input_ids"].shape) or read(*a, **k))
    analyze_sentences(model, TOKENIZER, SENTENCES)
    assert lengths == [(3, 8)]


def test_a_prpn_has_one_measure_of_distance_and_an_rnn_none():
    (prpn,) = analyze_sentences(MODEL_TYPES["prpn"].make(eos_token_id=0), TOKENIZER, SENTENCES[:1])
    assert prpn.trees_by_layer == {"syntactic distances": prpn.tree}
    (rnn,) = analyze_sentences(MODEL_TYPES["rnn"].make(eos_token_id=0), TOKENIZER, [read_gold_tree(LABELLED)])
    assert rnn.tree is None and rnn.trees_by_layer == {} and rnn.scores() == {}


def test_gold_trees_are_parsed_as_their_words_and_scored(onlstm):
    gold = read_gold_tree(LABELLED)
    (analysis,) = analyze_sentences(onlstm, TOKENIZER, [gold])
    assert analysis.reading.words == ("the", "old", "cat", "saw", "the", "dogs")
    tree = onlstm.parse([list(gold.words)], TOKENIZER)[0]
    scores = analysis.scores()
    assert scores["the model"] == score_parses([tree], [gold], num_resamples=0)
    for name in ("left branching", "right branching"):
        assert scores[name] == score_parses(baseline_trees(name, [gold]), [gold], num_resamples=0)
    itself = GoldTree(tree.words, tuple(("X", *span) for span in tree.spans()))
    assert analyze_sentences(onlstm, TOKENIZER, [itself])[0].scores()["the model"].sentence_f1 == pytest.approx(1)
    assert analyze_sentences(onlstm, TOKENIZER, ["the cat"])[0].scores() == {}


def test_gold_trees_may_have_labels_or_not():
    labelled = read_gold_tree(LABELLED)
    plain = read_gold_tree("((the old cat) (saw (the dogs)))")
    assert labelled.words == plain.words
    assert labelled.spans() == plain.spans() == [(0, 6), (0, 3), (3, 6), (4, 6)]
    assert read_gold_tree("The cat (old) sat") is None
    assert read_gold_tree("(old) cat sat") is None


@pytest.mark.parametrize(
    "text, words, constituents",
    [
        ("(S (NP the cat) (VP sat))", "the cat sat", [("S", 0, 3), ("NP", 0, 2)]),
        ("[S [NP the cat] [VP sat]]", "the cat sat", [("S", 0, 3), ("NP", 0, 2)]),
        ("[S [NP [DT the] [NN cat]] [VP sat]]", "the cat sat", [("S", 0, 3), ("NP", 0, 2)]),
        ("(S (NN cat))", "cat", []),
        ("( (S (NP-SBJ=2 The 1.2 cats) (. .)) )", "the N cats", [("S", 0, 3), ("NP", 0, 3)]),
        ("((the cat) sat)", "the cat sat", [("", 0, 3), ("", 0, 2)]),
        ("[the [old cat]]", "the old cat", [("", 0, 3), ("", 1, 3)]),
        ("(the (old cat))", "the old cat", [("", 0, 3), ("", 1, 3)]),
        ("(I (saw it))", "I saw it", [("", 0, 3), ("", 1, 3)]),
        ("(s (np (dt the) (nn cat)) (vbd sat))", "the cat sat", [("s", 0, 3), ("np", 0, 2)]),
    ],
)
def test_brackets_are_trees_round_or_square_with_tags_or_without(text, words, constituents):
    assert split_text(text) == [text]
    gold = read_gold_tree(text)
    assert gold.words == tuple(words.split())
    assert list(gold.constituents) == constituents


def test_sentences_with_square_brackets_stay_sentences():
    for text in ("[Applause] the cat sat", "the cat [sat]", "[the] cat (sat)"):
        assert split_text(text) == [text] and read_gold_tree(text) is None


def test_words_of_a_gold_tree_may_become_several_or_none():
    gold = GoldTree(("don't", ".", "go", "now"), (("S", 0, 4), ("VP", 0, 3), ("X", 1, 3)))
    spellings = {"don't": "do n't", ".": ""}
    spelt = spell_gold_tree(gold, lambda word: spellings.get(word, word))
    assert spelt == GoldTree(("do", "n't", "go", "now"), (("S", 0, 4), ("VP", 0, 3)))


@pytest.mark.parametrize(
    "text, message", [("(a b) (c d)", "got 2"), ("(a ))", "malformed brackets"), ("(a () b)", "nothing between")]
)
def test_malformed_gold_trees_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_gold_tree(text)


def test_a_text_has_a_sentence_a_line_and_trees_over_several():
    text = "\n the cat sat \n\n(S (NP the cat)\n   (VP sat))\n(old) dogs\r\n(a b)\n"
    assert split_text(text) == ["the cat sat", "(S (NP the cat) (VP sat))", "(old) dogs", "(a b)"]
    with pytest.raises(ValueError, match="never closed"):
        split_text("the cat\n(S (NP the cat)\nit sat")


@given(st.lists(st.text(st.sampled_from("ab )<&é"), min_size=1).filter(str.strip)))
def test_lines_without_an_opening_bracket_are_sentences_in_order(lines):
    assert split_text("\n".join(lines)) == [line.strip() for line in lines]


def test_the_more_probable_sentence_of_a_pair_is_preferred(model):
    pair = compare_pair(model, TOKENIZER, "the dogs saw it", "the dog saw it")
    scores = score_sentences(model, TOKENIZER, ["the dogs saw it", "the dog saw it"])
    totals = [score.total().total_log_likelihood for score in scores]
    assert pair.difference * math.log(2) == pytest.approx(totals[0] - totals[1], abs=1e-4)
    assert sum(column.difference for column in pair.columns()) == pytest.approx(pair.difference)
    assert not pair.differs_in_unknown_word
    swapped = compare_pair(model, TOKENIZER, "the dog saw it", "the dogs saw it")
    assert swapped.difference == pytest.approx(-pair.difference, abs=1e-9)


def test_pairs_that_differ_in_an_unknown_word_are_marked_and_may_tie(onlstm):
    pair = compare_pair(onlstm, TOKENIZER, "the zebra sat", "the zebu sat")
    assert pair.differs_in_unknown_word
    assert pair.difference == 0
    assert not compare_pair(onlstm, TOKENIZER, "the zebra sat", "the zebra saw").differs_in_unknown_word
