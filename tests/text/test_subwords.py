from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from onlstm_hf.text.tokenization import build_subword_tokenizer, build_word_tokenizer
from onlstm_hf.text.word_alignment import encode_words

TEXT = ["the cat sat on the mat", "the dog chased the other cats", "dogs and cats and mats", "der Hund , 12 Katzen ."]


def byte_pair_encoding(words: list[str], num_parts: int, min_count: int) -> list[tuple[str, ...]]:
    """Sennrich et al. (2016), counting anew after each merge, until there are so many parts: those of each word."""
    parts = {word: (word[0], *("##" + character for character in word[1:])) for word in words}
    counts = Counter(words)
    single = Counter(part for word in words for part in parts[word])
    order = {part: place for place, part in enumerate(sorted(single, key=lambda part: (-single[part], part)))}
    while len(order) < num_parts:
        pairs = Counter()
        for word, count in counts.items():
            for pair in zip(parts[word], parts[word][1:], strict=False):
                pairs[pair] += count
        if not pairs:
            break
        first, second = best = min(pairs, key=lambda pair: (-pairs[pair], order[pair[0]], order[pair[1]]))
        if pairs[best] < min_count:
            break
        merged = first + second.removeprefix("##")
        order.setdefault(merged, len(order))
        for word, old in parts.items():
            new, place = [], 0
            while place < len(old):
                together = old[place : place + 2] == best
                new.append(merged if together else old[place])
                place += 2 if together else 1
            parts[word] = tuple(new)
    return [parts[word] for word in words]


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=12),
    num_new=st.integers(0, 12),
    min_count=st.integers(1, 3),
)
@example(words=["aaaa", "aaa"], num_new=3, min_count=1)
def test_parts_are_those_of_byte_pair_encoding_with_every_pair_counted_anew(words, num_new, min_count):
    single = {part for word in words for part in (word[0], *("##" + character for character in word[1:]))}
    tokenizer = build_subword_tokenizer([" ".join(words)], vocab_size=3 + len(single) + num_new, min_count=min_count)
    expected = byte_pair_encoding(words, len(single) + num_new, min_count)
    assert tokenizer.tokenize(" ".join(words)) == [part for parts in expected for part in parts]


def test_the_same_text_gives_the_same_ids():
    text = [" ".join(f"{a}{b}{c}" for a in "stvw" for b in "aeio" for c in "lmnr")] * 2
    for parts in ("bpe", "characters"):
        vocabularies = [build_subword_tokenizer(text, parts=parts, vocab_size=60).get_vocab() for _ in range(5)]
        assert all(vocabulary == vocabularies[0] for vocabulary in vocabularies)
        assert sorted(vocabularies[0].values()) == list(range(len(vocabularies[0])))


@pytest.mark.parametrize("parts", ["bpe", "characters"])
def test_words_are_written_as_the_word_tokenizer_writes_them(parts, tmp_path):
    options = {"lowercase": True, "digits_to_n": True, "drop_punctuation": True}
    tokenizer = build_subword_tokenizer(TEXT, parts=parts, vocab_size=60, **options)
    words = build_word_tokenizer(TEXT, **options)
    for line in TEXT:
        assert tokenizer.decode(tokenizer.encode(line)) == words.decode(words.encode(line))
    assert tokenizer.tokenize("<eos> 99 Katze") == ["<eos>", "N", *tokenizer.tokenize("katze")]

    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).encode(TEXT[3]) == tokenizer.encode(TEXT[3])


def test_characters_are_parts_of_their_words():
    tokenizer = build_subword_tokenizer(["我們 常常 一起 上學", "常 上學"], parts="characters")
    assert tokenizer.tokenize("常常 上學") == ["常", "##常", "上", "##學"]
    assert encode_words(tokenizer, ["常常", "一", "上學"])[1] == [0, 0, 1, 2, 2]
    assert tokenizer.decode(tokenizer.encode("常常 上學")) == "常常 上學"
    assert tokenizer.tokenize("貓")[:1] == ["<unk>"]


def test_the_most_frequent_characters_have_the_room_that_there_is():
    tokenizer = build_subword_tokenizer(["a a a b b c"], parts="characters", vocab_size=5)
    assert tokenizer.get_vocab() == {"<eos>": 0, "<unk>": 1, "<pad>": 2, "a": 3, "b": 4}
    tokenizer = build_subword_tokenizer(["ab ab ab ac c c c c c"], vocab_size=6)
    assert set(tokenizer.get_vocab()) == {"<eos>", "<unk>", "<pad>", "c", "a", "##b"}
    assert tokenizer.tokenize("ac") == ["a", "<unk>"]


def test_special_tokens_that_are_written_in_the_text_are_no_words():
    tokenizer = build_subword_tokenizer(["<unk> aa <eos> aa"] * 5)
    assert set(tokenizer.get_vocab()) == {"<eos>", "<unk>", "<pad>", "a", "##a", "aa"}
    assert tokenizer.tokenize("aa <unk> aa") == ["aa", "<unk>", "aa"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": "syllables"}, "unknown parts 'syllables'"),
        ({"split": "characters"}, "words that are characters have no parts"),
        ({"split": "syllables"}, "unknown split 'syllables'"),
        ({"vocab_size": 3}, "vocab_size is 3; it must exceed 3"),
        ({"min_count": 0}, "min_count must be at least 1"),
        ({"eos_token": "<unk>"}, "must be non-empty and eos and unk distinct"),
    ],
)
def test_arguments_out_of_their_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build_subword_tokenizer(TEXT, **options)


@pytest.mark.parametrize("text", [[], [""], [" \n"], ["<unk>"]])
def test_a_text_without_words_is_refused(text):
    with pytest.raises(ValueError, match="no word: is the text empty"):
        build_subword_tokenizer(text)
