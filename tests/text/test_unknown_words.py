import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from onlstm_hf import build_word_tokenizer
from onlstm_hf.text.unknown_words import unknown_words


def test_fraction_of_out_of_vocabulary_words():
    tokenizer = build_word_tokenizer(["the cat sat"])
    assert unknown_words(tokenizer, ["the cat", "a dog sat on"]) == pytest.approx(3 / 6)
    assert unknown_words(tokenizer, [["the", "cat"], ["a", "dog", "sat", "on"]]) == pytest.approx(3 / 6)
    assert unknown_words(tokenizer, ["the <unk> sat"]) == pytest.approx(1 / 3)
    assert unknown_words(tokenizer, ["", []]) is None


def test_dropped_words_do_not_count():
    tokenizer = build_word_tokenizer(["the cat sat ."], drop_punctuation=True)
    assert unknown_words(tokenizer, ["the cat , dog !"]) == pytest.approx(1 / 3)


def test_a_word_with_an_unknown_subword_is_unknown_and_counts_once():
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "un": 1, "##known": 2, "cat": 3, "-": 4}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    assert unknown_words(tokenizer, ["unknown cat dog-fox-cat"]) == pytest.approx(1 / 3)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert unknown_words(tokenizer, ["dog"]) == 0
