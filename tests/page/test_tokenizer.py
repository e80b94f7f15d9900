"""Tokenizers of the page's script, compared with the library."""

import gzip
import json
import random
from itertools import islice

import pytest
from transformers import AutoTokenizer

from onlstm_hf import build_word_tokenizer
from onlstm_hf.text.tokenization import build_subword_tokenizer
from onlstm_hf.text.word_alignment import encode_sentence
from tests.helpers.page_scripts import error_of_script, run_script, utf16
from tests.text.test_ordinary_english import TYPED

TEXT = (
    "The company, which makes cars, said it doesn't expect to report a loss of $4.5 million (or 9.8%).",
    "Mr. Smith's firm isn't in the U.S. anymore -- he'll sell 1,000 shares at 3:15 p.m. on Jan. 2, 1986-87.",
    "“Curly quotes” and ‘single’ ones — and I can't, won't, gonna; they're 1\\/2 of AT&T's R&D at http://x.org/a?b=1.",
    "ALL CAPS <unk> N N's 30-year 1990s '80s e-mail@example.org #1 [brackets] {braces} <eos> café naïve Ünï",
    "Ａｂｃ ㎏ ﬁ \u200b\ufeff e\u0301 👩‍👩‍👧 猫 القطة السوداء Straße İstanbul ǅ"
    " 12.5.2020 .5 5. 1. . .. ... -- - ' '' `` \" &",
    "it 's n't does n't N.N % 5 % the\u00a0cat\tsat\u3000on",
)
OPTIONS = [
    {},
    {"lowercase": True},
    {"lowercase": True, "digits_to_n": True},
    {"lowercase": True, "digits_to_n": True, "drop_punctuation": True},
    {"split": "treebank"},
    {"split": "treebank", "lowercase": True, "digits_to_n": True, "drop_punctuation": True},
    {"split": "characters"},
]
PIECES = (
    *("the", "Cat", "said", "IT", "N", "9.8", "1,000", "don't", "'s", "U.S.", "Mr.", ".", ",", "%", "$5", "-", "--"),
    *("(", ")", "\u2019", "\u201c", "é", "e\u0301", "猫", "\u200b", "&", "/", "\\/", "<unk>", "1\\/2", "1990s"),
    *("a.m.", "#", "?!", "...", "x@y", "Ph.D.", "Fig.", "won´t", "`", "¿él", "él,", "了，"),
    *("20$", "US$", "1990\u20119", "1\u00ad0", "a\u200db", "\u2067", "No.5", "http://a.b/", "www.c", "—él", "ella—."),
    *("'él'", "'s", "d'", "5€", "$5.", "oﬃce", "ﬁ"),
)


def random_texts(number, seed=0):
    """Generates texts from pieces that tokenizers treat specially, joined with and without spaces."""
    generator = random.Random(seed)
    for _ in range(number):
        pieces = generator.choices(PIECES, k=generator.randrange(1, 12))
        yield "".join(piece + generator.choice((" ", " ", " ", "", "\t")) for piece in pieces)


def read_with_script(tokenizer, texts):
    return run_script(
        """const own = new tokenizer.Tokenizer(JSON.parse(data.tokenizer));
           return data.texts.map((text) => own.read(text));""",
        {"tokenizer": tokenizer.backend_tokenizer.to_str(), "texts": texts},
        tokenizer="model/tokenizer.js",
    )


def assert_same_readings(tokenizer, texts, of_pieces=False):
    """Compares what the script reads; for tokenizers of pieces without places and unknown words."""
    for text, reading in zip(texts, read_with_script(tokenizer, texts), strict=True):
        words, ids, word_of_token, places = encode_sentence(tokenizer, text)
        assert (reading["words"], reading["ids"], reading["wordOfToken"]) == (words, ids, word_of_token), text
        if not of_pieces:
            assert reading["places"] == utf16(text, places), text
            unknown = {word for word, token in zip(word_of_token, ids, strict=True) if token == tokenizer.unk_token_id}
            assert reading["isUnknown"] == [word in unknown for word in range(len(words))], text


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_word_tokenizers_match_the_library(options):
    tokenizer = build_word_tokenizer(TEXT[:4], **options)
    assert_same_readings(tokenizer, [*TEXT, *random_texts(400)])


@pytest.mark.parametrize("parts", ["bpe", "characters"])
def test_subword_tokenizers_match_the_library(parts):
    source = [*TEXT[:4], *random_texts(300, seed=1)]
    options = {"vocab_size": 150, "min_count": 1, "lowercase": True, "digits_to_n": True}
    tokenizer = build_subword_tokenizer(source, parts=parts, **options)
    assert_same_readings(
        tokenizer, [text for text in [*TEXT[:4], *random_texts(300)] if "<" not in text], of_pieces=True
    )


@pytest.mark.parametrize(
    "source, texts",
    [
        ("null nullify nullify nullify ify", ["éify", "é nullify"]),  # the unknown character is not the word null
        ("ab abab abababab", ["ab" * 20_000, "a b " * 10_000]),
    ],
)
def test_unknown_characters_and_very_long_words_are_tokenized(source, texts):
    tokenizer = build_subword_tokenizer([source] * 9, vocab_size=60, min_count=1)
    assert_same_readings(tokenizer, texts, of_pieces=True)


@pytest.mark.parametrize(
    "name", ["onlstm-english", "onlstm-ptb-small-distilled", "onlstm-es-small-distilled", "prpn-zh-small"]
)
def test_released_tokenizers_match_the_library(project_root, name):
    tokenizer = AutoTokenizer.from_pretrained(project_root / "model_cards" / name)
    if json.loads(tokenizer.backend_tokenizer.to_str())["model"]["type"] == "WordLevel":
        assert_same_readings(tokenizer, [*TEXT, *TYPED, *random_texts(1500)])
    else:
        texts = ["我們 的 老師 說 他 喜歡 這 本 書", "他 在 學校 學習 中文", *TEXT]
        assert_same_readings(tokenizer, texts, of_pieces=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onlstm-english", "onlstm-ptb-small-distilled"])
def test_thousands_of_english_sentences_match_the_library(project_root, shared_dir, name):
    lines = (shared_dir / "data/english/valid.txt").read_text(encoding="utf-8").splitlines()[:3000]
    with gzip.open(shared_dir / "data/english/news.txt.gz", "rt", encoding="utf-8") as file:
        lines += [line.rstrip("\n") for line in islice(file, 2000)]
    assert_same_readings(AutoTokenizer.from_pretrained(project_root / "model_cards" / name), lines)


def test_unsupported_components_are_named():
    data = {"normalizer": {"type": "BertNormalizer"}, "model": {"type": "WordLevel", "vocab": {}}, "added_tokens": []}
    assert "BertNormalizer" in error_of_script("new tokenizer.Tokenizer(data)", data, tokenizer="model/tokenizer.js")
