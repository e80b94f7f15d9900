import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from onlstm_hf.text.tokenization import build_subword_tokenizer, build_word_tokenizer, read_source
from tests.helpers.requirements import library

SENTENCES = ["the cat saw the dog", "a dog saw a cat", "the bird slept"]


def pieces(tokenizer, text):
    """Returns the part of the text that each token covers."""
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    return [text[start:end] for start, end in offsets]


def test_all_kinds_of_sources_give_the_same_vocabulary(tmp_path):
    datasets = library("datasets")
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("\n".join(SENTENCES[:2]) + "\n", encoding="utf-8-sig")  # with a byte order mark
    second.write_text(SENTENCES[2] + "\r\n", encoding="utf-8")
    both = tmp_path / "both files.txt"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    dataset = datasets.Dataset.from_dict({"sentence": SENTENCES, "label": [0, 1, 2]})

    expected = build_word_tokenizer(SENTENCES).get_vocab()
    for source in (both, str(both), [str(both)], [first, second], [str(first), str(second)], iter(SENTENCES)):
        assert build_word_tokenizer(source).get_vocab() == expected
    for source in (dataset, dataset.to_iterable_dataset()):
        assert build_word_tokenizer(source, text_column="sentence").get_vocab() == expected


def test_vocab_size_counts_the_special_tokens():
    tokenizer = build_word_tokenizer(SENTENCES, vocab_size=5)
    assert len(tokenizer) == tokenizer.vocab_size == 5
    assert tokenizer.encode("the bird saw a cat") == [3, 1, 1, 4, 1]
    assert len(build_word_tokenizer(SENTENCES, vocab_size=1000)) == 10


def test_min_count_drops_rare_words():
    tokenizer = build_word_tokenizer(SENTENCES, min_count=2)
    assert tokenizer.convert_ids_to_tokens(range(3, len(tokenizer))) == ["the", "a", "cat", "dog", "saw"]


def test_missing_special_tokens_are_appended_to_a_given_vocabulary():
    original = ["aer", "<eos>", "pierre", "<unk>", "N"]
    tokenizer = build_word_tokenizer(vocabulary=original)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*original, "<pad>"]
    assert tokenizer.encode("pierre <unk> vinken N <eos>") == [2, 3, 3, 4, 1]

    by_id = build_word_tokenizer(vocabulary={word: index for index, word in reversed(list(enumerate(original)))})
    assert by_id.get_vocab() == tokenizer.get_vocab()
    assert len(build_word_tokenizer(vocabulary=original, pad_token=None)) == len(original)
    shared = build_word_tokenizer(vocabulary=original, pad_token="<eos>")
    assert (len(shared), shared.pad_token_id) == (len(original), shared.eos_token_id)


def test_no_special_token_is_added_to_the_text():
    tokenizer = build_word_tokenizer(SENTENCES)
    for text in [*SENTENCES, ""]:
        ids = tokenizer(text, add_special_tokens=True)["input_ids"]
        assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(text.split())
    assert set(tokenizer("the cat")) == {"input_ids", "attention_mask"}


def test_decode_joins_words_with_spaces_and_characters_without():
    words = build_word_tokenizer(["I do n't know , John 's dog ."])
    assert words.decode(words.encode("I do  n't know ,\tJohn 's dog .")) == "I do n't know , John 's dog ."
    characters = build_word_tokenizer(["I do n't"], split="characters")
    assert characters.decode(characters.encode("do n't  I")) == "do n't  I"


# Pairs of a word and its form in the Penn Treebank text for language modelling.
PENN_NUMBERS = [
    *((number, "N") for number in ["61", "9.8", "1,000", "4,393,237", "1\\/2", "1/2", "1986-87", "3:15", "%"]),
    *((word, word) for word in ["1990s", "'80s", "30-year", "13th", "cray-3", "190.58-point", "300-a-share"]),
]


@pytest.mark.parametrize("split", ["whitespace", "treebank"])
@pytest.mark.parametrize(("word", "expected"), PENN_NUMBERS)
def test_numbers_become_n_as_in_the_penn_treebank_text(split, word, expected):
    tokenizer = build_word_tokenizer(vocabulary=["N", word, "in", "years"], digits_to_n=True, split=split)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(f"in {word} years")) == ["in", expected, "years"]


def test_number_normalisation_agrees_with_the_penn_treebank_text(shared_dir):
    """The treebank and the language-modelling text are the same articles before and after normalisation."""
    trees = (shared_dir / "data/wsj_sample/wsj_0001-0199.mrg").read_text(encoding="utf-8")
    raw_words = Counter(word.lower() for tag, word in re.findall(r"\((\S+) ([^()\s]+)\)", trees) if tag != "-NONE-")
    lines = (shared_dir / "data/ptb/train.txt").read_text(encoding="utf-8").split("\n")[1:3911]
    penn_words = Counter(" ".join(lines).split())

    tokenizer = build_word_tokenizer(vocabulary=["N"], lowercase=True, digits_to_n=True)
    num_numbers = sum(count for word, count in raw_words.items() if tokenizer.encode(word) == [0])
    assert num_numbers == pytest.approx(penn_words["N"], rel=0.02)
    assert penn_words["N"] > 2000


def test_lower_casing_keeps_the_number_symbol():
    tokenizer = build_word_tokenizer(["Pierre <unk> N years old"], lowercase=True, digits_to_n=True)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("PIERRE 61 N n")) == ["pierre", "N", "N", "<unk>"]
    plain = build_word_tokenizer(["Pierre N"], lowercase=True)
    assert plain.convert_ids_to_tokens(plain.encode("PIERRE N")) == ["pierre", "n"]


@pytest.mark.parametrize("lowercase", [False, True])
def test_offsets_refer_to_the_original_text(lowercase):
    text = "  The  İstanbul\tcafé 👩‍👩‍👧 ran\n"
    tokenizer = build_word_tokenizer(["the"], lowercase=lowercase, digits_to_n=True)
    assert pieces(tokenizer, text) == text.split()
    treebank = build_word_tokenizer(["the"], lowercase=lowercase, digits_to_n=True, split="treebank")
    assert pieces(treebank, "JOHN'S dog Didn't (run)!") == ["JOHN", "'S", "dog", "Did", "n't", "(", "run", ")", "!"]
    assert pieces(build_word_tokenizer(["a"], split="characters", lowercase=lowercase), "A b\nÉ") == list("A b\nÉ")


TREEBANK_SENTENCES = {
    "They'll say I don't, I can't and we won't.": "They 'll say I do n't , I ca n't and we wo n't .",
    "John's dogs' bones aren't O'Brien's.": "John 's dogs ' bones are n't O'Brien 's .",
    'He said: "I cannot (and will not) go"!': 'He said : " I can not ( and will not ) go " !',
    "Mr. J. R. Smith of Dow Corp. left at 3:15 p.m. today.": "Mr. J. R. Smith of Dow Corp. left at 3:15 p.m. today .",
    "It fell 3.5%, to $1,000 -- really?": "It fell 3.5 % , to $ 1,000 -- really ?",
    "One sentence. Then another. I.": "One sentence . Then another . I .",
    "A 30-year-old U.S.-based AT&T unit in the '80s...": "A 30-year-old U.S.-based AT&T unit in the '80s ...",
    "I’ve heard it’s Ann’s; isn’t it?": "I ’ve heard it ’s Ann ’s ; is n’t it ?",
    "wow 👩‍👩‍👧! ❤️": "wow 👩‍👩‍👧 ! ❤️",
}


@pytest.mark.parametrize(("sentence", "expected"), TREEBANK_SENTENCES.items())
def test_treebank_splitting(sentence, expected):
    for lowercase in (False, True):
        tokenizer = build_word_tokenizer(["the"], split="treebank", lowercase=lowercase)
        assert pieces(tokenizer, sentence) == expected.split() == pieces(tokenizer, expected)


def test_treebank_splitting_agrees_with_nltk():
    nltk_tokenize = library("nltk.tokenize")
    tokenizer = build_word_tokenizer(["the"], split="treebank")
    for sentence in [
        "Good muffins cost $3.88 in New York, but she doesn't buy them.",
        "The firm's profit (before tax) rose 12%; isn't that what you'd expect?",
        "They've gotta leave, we'll wanna stay, I'm gonna go & you cannot!",
    ]:
        assert pieces(tokenizer, sentence) == nltk_tokenize.TreebankWordTokenizer().tokenize(sentence)


def test_treebank_splitting_keeps_the_words_of_the_penn_treebank(shared_dir):
    trees = (shared_dir / "data/wsj_sample/wsj_0001-0199.mrg").read_text(encoding="utf-8")
    words = [word for tag, word in re.findall(r"\((\S+) ([^()\s]+)\)", trees) if tag != "-NONE-"]
    tokenizer = build_word_tokenizer(["the"], split="treebank")
    text = " ".join(words)
    found = {tuple(span) for span in tokenizer(text, return_offsets_mapping=True)["offset_mapping"]}
    expected = {match.span() for match in re.finditer(r"\S+", text)}
    assert len(expected) > 90_000
    assert len(expected & found) > 0.998 * len(expected)


@pytest.mark.parametrize("split", ["whitespace", "treebank", "characters"])
@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(st.text(st.sampled_from("aBNİ19.,'-/ \t$é😀\u0301") | st.characters(codec="utf-8")), max_size=5),
    normalise=st.booleans(),
)
def test_vocabulary_and_encoding_agree_on_any_text(split, texts, normalise):
    options = {"split": split, "lowercase": normalise, "digits_to_n": normalise}
    tokenizer = build_word_tokenizer(["a known word<unk>", *texts], **options)
    counts = Counter()
    for text in ["a known word", *texts]:
        counts.update(tokenizer.tokenize(text))
    assert counts.pop("<unk>", 0) == sum(text.count("<unk>") for text in texts)
    assert tokenizer.encode("<eos><unk>") == [0, 1]
    del counts["<eos>"], counts["<pad>"]
    vocabulary = tokenizer.convert_ids_to_tokens(range(3, len(tokenizer)))
    assert vocabulary == sorted(counts, key=lambda word: (-counts[word], word.encode("utf-8")))


@settings(deadline=None, max_examples=60)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="<"), min_size=1))
def test_characters_round_trip(text):
    tokenizer = build_word_tokenizer(iter([text]), split="characters")
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_save_and_load_keep_the_tokenizer(tmp_path):
    text = "Mr. Smith doesn't have 1,000 cats <unk> <eos>"
    for index, options in enumerate(
        [{"split": "treebank", "lowercase": True, "digits_to_n": True}, {"split": "characters"}, {"pad_token": None}]
    ):
        tokenizer = build_word_tokenizer([text], **options)
        tokenizer.save_pretrained(tmp_path / str(index))
        loaded = AutoTokenizer.from_pretrained(tmp_path / str(index))
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert loaded.special_tokens_map == tokenizer.special_tokens_map
        assert loaded(text, return_offsets_mapping=True) == tokenizer(text, return_offsets_mapping=True)
        assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_batches_are_padded_on_the_padding_side(tmp_path):
    batch = build_word_tokenizer(SENTENCES)(["the cat", "the"], padding=True)
    assert (batch["input_ids"], batch["attention_mask"]) == ([[3, 5], [3, 2]], [[1, 1], [1, 0]])
    build_word_tokenizer(SENTENCES, padding_side="left").save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(["the cat", "the"], padding=True)["input_ids"] == [[3, 5], [2, 3]]


def test_penn_treebank_vocabulary(shared_dir):
    path = shared_dir / "data/ptb/train.txt"
    tokenizer = build_word_tokenizer(path)
    counts = Counter(path.read_text(encoding="utf-8").split())
    del counts["<unk>"]
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    assert tokenizer.convert_ids_to_tokens(range(3, len(tokenizer))) == expected
    assert len(tokenizer) == 10_001


def test_long_lines_of_a_file_are_split_between_words(tmp_path):
    path = tmp_path / "long.txt"
    text = " ".join(["été", "the", "naïve", "日本語", "x" * 50] * 40_000)
    path.write_text(f"{text}\nthe end", encoding="utf-8")
    *pieces, last = read_source(path, "text")
    assert "".join(pieces) == text and last == "the end"
    assert max(map(len, pieces)) < 1_000_100 and all(piece[0] == " " for piece in pieces[1:])


def test_errors_name_the_file(tmp_path):
    (tmp_path / "latin1.txt").write_bytes(b"caf\xe9 six\n")
    for source, error, message in [
        (tmp_path / "absent.txt", FileNotFoundError, "absent.txt"),
        (["absent.txt"], FileNotFoundError, "absent.txt"),
        ([tmp_path], IsADirectoryError, "is a folder"),
        (tmp_path / "latin1.txt", ValueError, r"latin1\.txt is not UTF-8"),
    ]:
        with pytest.raises(error, match=message):
            build_word_tokenizer(source)


@pytest.mark.parametrize("build", [build_word_tokenizer, build_subword_tokenizer])
@pytest.mark.parametrize(
    "texts", [["and/or", "cat"], ["U.S", "cat"], ("3.5", "km/h"), ["he said and/or", "notes.txt"]]
)
def test_strings_of_a_list_are_text_unless_they_have_suffixes_of_text_files(build, texts):
    tokenizer = build(texts)
    for word in " ".join(texts).split():
        assert tokenizer.unk_token_id not in tokenizer(word).input_ids


@pytest.mark.parametrize("build", [build_word_tokenizer, build_subword_tokenizer])
@pytest.mark.parametrize("source", [[], [""], [" \n\t "], ["<unk>"], iter(())])
def test_a_text_without_words_is_refused(build, source):
    with pytest.raises(ValueError, match="no word.*: is the text empty"):
        build(source)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        *(
            (build, options, message)
            for build in (build_word_tokenizer, build_subword_tokenizer)
            for options, message in (
                ({"vocab_size": 3}, "vocab_size is 3; it must exceed 3"),
                ({"min_count": 0}, "min_count must be at least 1"),
                ({"split": "words"}, "unknown split 'words'; choose one of 'whitespace', 'treebank'"),
                ({"eos_token": "<unk>"}, "must be non-empty and eos and unk distinct"),
            )
        ),
        (build_word_tokenizer, {"min_count": 100}, "occurs 100 times or more"),
        (build_word_tokenizer, {"vocabulary": ["a"]}, "either a source"),
        (build_subword_tokenizer, {"parts": "syllables"}, "unknown parts 'syllables'"),
        (build_subword_tokenizer, {"split": "characters"}, "words that are characters have no subwords"),
    ],
)
def test_invalid_arguments_are_refused(build, options, message):
    with pytest.raises(ValueError, match=message):
        build(SENTENCES, **options)


@pytest.mark.parametrize("vocabulary", [["a", "b", "a"], {"a": 0, "b": 2}, {"a": 0, "b": 0}])
def test_a_vocabulary_with_repeated_words_or_ids_is_refused(vocabulary):
    with pytest.raises(ValueError, match="must have every word once, with the ids 0 to"):
        build_word_tokenizer(vocabulary=vocabulary)


def test_invalid_sources_are_refused():
    for item in ({"sentence": "the cat"}, {"text": None}, 1):
        with pytest.raises(ValueError, match=f"rows with text in the column 'text', not {item}"):
            build_word_tokenizer([item])
    with pytest.raises(ValueError, match="several splits.*train, test"):
        build_word_tokenizer({"train": [], "test": []})


@pytest.mark.parametrize("split", ["whitespace", "treebank"])
def test_words_without_letters_or_digits_are_dropped(split):
    text = ["O gato , que dorme . ( 12 %", "-- ... !?"]
    tokenizer = build_word_tokenizer(text, drop_punctuation=True, lowercase=True, split=split)
    words = tokenizer.tokenize("O gato , que dorme . <eos> -- 12 ... $ % !? ( q.")
    assert words == ["o", "gato", "que", "dorme", "<eos>", "12", "<unk>"]
    assert set(tokenizer.get_vocab()) == {"<eos>", "<unk>", "<pad>", "o", "gato", "que", "dorme", "12"}
    with_numbers = build_word_tokenizer(text, drop_punctuation=True, digits_to_n=True, split=split)
    assert with_numbers.tokenize("12 , % .") == ["N", "N"]


def test_punctuation_at_the_ends_of_words_is_dropped():
    text = ["o sr. gato que dorme N ee.uu. d'água fim-de-semana 。 貓"]
    tokenizer = build_word_tokenizer(text, drop_punctuation=True, lowercase=True, digits_to_n=True)
    words = tokenizer.tokenize("«O Sr. gato», que (dorme)... ¿1.000,50, 12? 「貓」， d'água; fim-de-semana “dorme.”")
    assert words == ["o", "sr.", "gato", "que", "dorme", "N", "N", "貓", "d'água", "fim-de-semana", "dorme"]
    assert tokenizer.tokenize("que dorme: EE.UU.") == ["que", "dorme", "ee.uu."]
    assert tokenizer.tokenize("—gato —dorme—. (20€). $5, 3$ ‘gato’") == ["gato", "dorme", "N", "N", "N", "gato"]


def test_apostrophes_at_the_ends_of_words_stay_and_quotation_marks_do_not():
    tokenizer = build_word_tokenizer(["'t 's '98 m'n d' hans' dat huis ik us$"], drop_punctuation=True, lowercase=True)
    words = tokenizer.tokenize("'Ik,' 'dat', d' 's Hans' 't '98 M'n 'ik' US$ 'Dat huis.'")
    assert words == ["ik", "dat", "d'", "'s", "hans'", "'t", "'98", "m'n", "ik", "us$", "dat", "huis"]
