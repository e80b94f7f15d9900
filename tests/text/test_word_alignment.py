from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, CanineTokenizer, PreTrainedTokenizerFast

from onlstm_hf.text.tokenization import build_subword_tokenizer, build_word_tokenizer
from onlstm_hf.text.word_alignment import encode_sentence, encode_words, is_word_level

CORPUS = [
    "the cat sat on the mat and the dog barked",
    "the dog that chased the cat was barking loudly",
    "a small cat likes the smaller dogs",
] * 5


def word_piece() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")


def byte_level_bpe(add_prefix_space: bool = False, trim_offsets: bool = True, **special_tokens):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 300, "special_tokens": ["<|endoftext|>"], "show_progress": False}
    backend.train_from_iterator(CORPUS, trainers.BpeTrainer(initial_alphabet=alphabet, **options))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special_tokens)


def unigram() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    options = {"vocab_size": 40, "special_tokens": ["<unk>", "</s>"], "show_progress": False}
    backend.train_from_iterator(CORPUS, trainers.UnigramTrainer(unk_token="<unk>", **options))
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>")


def sentencepiece_like_bpe() -> PreTrainedTokenizerFast:
    """Spaces are characters, without a pre-tokenizer, as in Llama's tokenizer."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>"], show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.pre_tokenizer = pre_tokenizers.Sequence([])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def plain_bpe_without_unknown_token() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=60, show_progress=False))
    backend.add_special_tokens([AddedToken("</s>")])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


TOKENIZERS = {
    "words": lambda: build_word_tokenizer(CORPUS),
    "treebank words": lambda: build_word_tokenizer(CORPUS, split="treebank", lowercase=True, digits_to_n=True),
    "characters": lambda: build_word_tokenizer(CORPUS, split="characters"),
    "WordPiece": word_piece,
    "byte-level BPE": lambda: byte_level_bpe(eos_token="<|endoftext|>"),
    "byte-level BPE, prefix space": lambda: byte_level_bpe(add_prefix_space=True, eos_token="<|endoftext|>"),
    "byte-level BPE, untrimmed": lambda: byte_level_bpe(trim_offsets=False, unk_token="<|endoftext|>"),
    "Unigram": unigram,
    "SentencePiece-like BPE": sentencepiece_like_bpe,
    "BPE without unknown token": plain_bpe_without_unknown_token,
    "slow bytes": ByT5Tokenizer,
    "slow characters": CanineTokenizer,
}
WORD_LEVEL = {"words", "treebank words", "characters"}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


@cache
def built(name: str):
    return TOKENIZERS[name]()


@every_tokenizer
def test_ids_equal_those_of_the_text_and_belong_to_their_words(name):
    tokenizer = built(name)
    words = ["the", "smaller", "dogs", "barked", "loudly"]
    ids, word_indices = encode_words(tokenizer, words)
    assert ids == tokenizer.encode(" ".join(words), add_special_tokens=False)
    for index, word in enumerate(words):
        tokens = [token_id for token_id, word_index in zip(ids, word_indices, strict=True) if word_index == index]
        assert tokenizer.decode(tokens).replace(" ##", "").strip() in (word, "<unk>", " ".join(word), "[UNK]")


def test_a_space_of_a_character_tokenizer_belongs_to_the_next_word():
    for name in ("characters", "slow characters"):
        assert encode_words(built(name), ["the", "cat"])[1] == [0, 0, 0, 1, 1, 1, 1]


HARD_WORDS = ["the", "", "cat", "\u200b", "\ufe0f", "\x00", "\x07", "👩‍👩‍👧"]
HARD_WORDS += ["New York", " ", "日本語", "É", "don't", ""]


@settings(deadline=None, max_examples=40)
@example(words=HARD_WORDS)
@example(words=HARD_WORDS[::-1])
@example(words=[])
@example(words=["", ""])
@example(words=["the"] * 500)
@given(words=st.lists(st.text(st.sampled_from("theca'9 ▁#\u0301\ufe0f😀") | st.characters(codec="utf-8"), max_size=6)))
@every_tokenizer
def test_every_word_has_a_token(name, words):
    tokenizer = built(name)
    ids, word_indices = encode_words(tokenizer, words)
    assert len(ids) == len(word_indices)
    assert set(word_indices) == set(range(len(words)))
    assert word_indices == sorted(word_indices)
    assert all(isinstance(token_id, int) and token_id >= 0 for token_id in ids)


def test_a_word_without_tokens_gets_the_unknown_token():
    tokenizer = built("WordPiece")
    ids, word_indices = encode_words(tokenizer, ["the", "\x07", "cat"])
    assert word_indices == [0, 1, *[2] * (len(ids) - 2)]
    assert ids[1] == tokenizer.unk_token_id


def test_without_an_unknown_token_a_word_without_tokens_copies_its_neighbour():
    tokenizer = built("BPE without unknown token")
    the, cat = (tokenizer.encode(word) for word in ("the", "cat"))
    assert len(the) == len(cat) == 1
    assert encode_words(tokenizer, ["", "the", "", "", "cat"]) == ([*the, *the, *the, *the, *cat], [0, 1, 2, 3, 4])
    assert encode_words(tokenizer, ["", ""]) == ([tokenizer.eos_token_id] * 2, [0, 1])


def test_a_tokenizer_without_a_token_for_any_word_is_refused():
    with pytest.raises(ValueError, match="set tokenizer.unk_token"):
        encode_words(byte_level_bpe(), [""])


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name not in WORD_LEVEL])
def test_white_space_separates_words_for_other_tokenizers(name):
    tokenizer = built(name)
    text = "  The cat's 1,000\tdogs  barked.\n"
    words, ids, word_indices, offsets = encode_sentence(tokenizer, text)
    assert words == text.split() == [text[start:end] for start, end in offsets]
    assert (ids, word_indices) == encode_words(tokenizer, words)


def test_words_are_the_tokens_of_a_word_level_tokenizer():
    text = "  The DOG didn't see 9.8% of 1,000 cats (<unk>) in the 1990s. "
    words, ids, word_indices, offsets = encode_sentence(built("treebank words"), text)
    assert " ".join(words) == "The DOG did n't see 9.8 % of 1,000 cats ( <unk> ) in the 1990s ."
    assert [text[start:end] for start, end in offsets] == words
    assert ids == built("treebank words").encode(text)
    assert word_indices == list(range(len(words)))

    assert encode_sentence(built("words"), "the  zebra sat")[0] == ["the", "zebra", "sat"]
    assert encode_sentence(built("characters"), "a cat")[0] == ["a", " ", "c", "a", "t"]


def test_punctuation_dropped_by_a_subword_tokenizer_is_no_word():
    tokenizer = build_subword_tokenizer(["The cat saw the dog"] * 9, drop_punctuation=True)
    words, ids, word_indices, offsets = encode_sentence(tokenizer, "The cat , « saw » the dog .")
    assert words == ["The", "cat", "saw", "the", "dog"]
    assert offsets == [(0, 3), (4, 7), (12, 15), (18, 21), (22, 25)]
    assert ids == tokenizer.encode("The cat , « saw » the dog .", add_special_tokens=False)
    assert sorted(set(word_indices)) == [0, 1, 2, 3, 4]
    assert tokenizer.unk_token_id not in ids
    assert encode_sentence(tokenizer, "« , »") == ([], [], [], [])


def test_offsets_cover_whole_numbers_that_became_n():
    tokenizer = build_word_tokenizer(vocabulary=["in", "N"], digits_to_n=True, lowercase=True)
    words, ids, _, offsets = encode_sentence(tokenizer, "In 1,000 9.8 61")
    assert words == ["In", "1,000", "9.8", "61"]
    assert ids == [0, 1, 1, 1]
    assert offsets == [(0, 2), (3, 8), (9, 12), (13, 15)]
    numbers = ["1990\u201195", "1\u00ad990", "(1\u200b990)", "1\u2060/\ufeff2", "9\u20105", "1–2"]
    words = encode_sentence(built("treebank words"), " ".join(numbers))[0]
    assert " ".join(words) == " ".join(numbers).replace("(", "( ").replace(")", " )")


@every_tokenizer
def test_a_sentence_without_words_has_no_tokens(name):
    tokenizer = built(name)
    assert encode_sentence(tokenizer, "") == ([], [], [], [])
    if tokenizer is not built("characters"):
        assert encode_sentence(tokenizer, " \n\t ") == ([], [], [], [])


def test_word_level_tokenizers_are_recognised():
    assert {name for name in TOKENIZERS if is_word_level(built(name))} == WORD_LEVEL


def test_words_do_not_include_dropped_punctuation():
    tokenizer = build_word_tokenizer(["o gato que dorme N"], drop_punctuation=True, digits_to_n=True, split="treebank")
    text = "(o gato, «que» (9.8 dorme.) 5%, .5"
    words, ids, _, offsets = encode_sentence(tokenizer, text)
    assert words == ["o", "gato", "que", "9.8", "dorme", "5", "%", ".5"]
    assert [text[start:end] for start, end in offsets] == words
    assert tokenizer.convert_ids_to_tokens(ids) == ["o", "gato", "que", "N", "dorme", "N", "N", "N"]
