import pytest
from transformers import AutoTokenizer

from onlstm_hf.text.tokenization import build_subword_tokenizer, build_word_tokenizer
from onlstm_hf.text.word_alignment import encode_words

TEXT = ["the cat sat on the mat", "the dog chased the other cats", "dogs and cats and mats", "der Hund , 12 Katzen ."]


def test_the_most_frequent_pairs_are_merged_first():
    """The words of Sennrich et al. (2016), with 11 characters."""
    text = ["low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3]
    tokenizer = build_subword_tokenizer(text, vocab_size=3 + 11 + 4, min_count=1)
    assert tokenizer.tokenize("low lowest newer") == ["low", "low", "##est", "n", "##e", "##w", "##e", "##r"]
    assert set(tokenizer.get_vocab()) >= {"##es", "##est", "##ow", "low"} and len(tokenizer) == 18
    frequent = build_subword_tokenizer(text, vocab_size=100, min_count=8)
    assert frequent.tokenize("lowest") == ["l", "##o", "##w", "##est"]


def test_the_same_text_gives_the_same_ids():
    text = [" ".join(f"{a}{b}{c}" for a in "stvw" for b in "aeio" for c in "lmnr")] * 2
    for parts in ("bpe", "characters"):
        vocabularies = [build_subword_tokenizer(text, parts=parts, vocab_size=60).get_vocab() for _ in range(5)]
        assert all(vocabulary == vocabularies[0] for vocabulary in vocabularies)
        assert sorted(vocabularies[0].values()) == list(range(len(vocabularies[0])))


@pytest.mark.parametrize("parts", ["bpe", "characters"])
def test_words_are_normalised_as_by_the_word_tokenizer(parts, tmp_path):
    options = {"lowercase": True, "digits_to_n": True, "drop_punctuation": True}
    tokenizer = build_subword_tokenizer(TEXT, parts=parts, vocab_size=60, **options)
    words = build_word_tokenizer(TEXT, **options)
    for line in TEXT:
        assert tokenizer.decode(tokenizer.encode(line)) == words.decode(words.encode(line))
    assert tokenizer.tokenize("<eos> 99 Katze") == ["<eos>", "N", *tokenizer.tokenize("katze")]

    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).encode(TEXT[3]) == tokenizer.encode(TEXT[3])


def test_characters_are_subwords():
    tokenizer = build_subword_tokenizer(["我們 常常 一起 上學", "常 上學"], parts="characters")
    assert tokenizer.tokenize("常常 上學") == ["常", "##常", "上", "##學"]
    assert encode_words(tokenizer, ["常常", "一", "上學"])[1] == [0, 0, 1, 2, 2]
    assert tokenizer.decode(tokenizer.encode("常常 上學")) == "常常 上學"
    assert tokenizer.tokenize("貓")[:1] == ["<unk>"]


def test_a_small_vocabulary_has_the_most_frequent_characters():
    tokenizer = build_subword_tokenizer(["a a a b b c"], parts="characters", vocab_size=5)
    assert tokenizer.get_vocab() == {"<eos>": 0, "<unk>": 1, "<pad>": 2, "a": 3, "b": 4}
    tokenizer = build_subword_tokenizer(["ab ab ab ac c c c c c"], vocab_size=6)
    assert set(tokenizer.get_vocab()) == {"<eos>", "<unk>", "<pad>", "c", "a", "##b"}
    assert tokenizer.tokenize("ac") == ["a", "<unk>"]


def test_special_tokens_in_the_text_are_no_words():
    tokenizer = build_subword_tokenizer(["<unk> aa <eos> aa"] * 5)
    assert set(tokenizer.get_vocab()) == {"<eos>", "<unk>", "<pad>", "a", "##a", "aa"}
    assert tokenizer.tokenize("aa <unk> aa") == ["aa", "<unk>", "aa"]
