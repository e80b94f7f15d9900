"""The released English tokenizers on typed text and on the Penn Treebank text."""

import json
from functools import cache

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from onlstm_hf import InducedTree, build_word_tokenizer
from onlstm_hf.cli.main import main
from onlstm_hf.parsing.sentences import read_text
from onlstm_hf.text.word_alignment import encode_sentence, encode_words, mark_offsets
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.checkpoints import PACKED_MODEL, RELEASED_MODEL, load_checkpoint
from tests.conftest import PROJECT_ROOT

CARDS = sorted(folder.name for folder in (PROJECT_ROOT / "model_cards").glob("*ptb*"))
WORD_LEVEL = PROJECT_ROOT / "model_cards" / "onlstm-ptb-small-distilled"


@cache
def released(name: str = WORD_LEVEL.name):
    return AutoTokenizer.from_pretrained(PROJECT_ROOT / "model_cards" / name)


def looked_up(tokenizer, sentences):
    vocabulary = tokenizer.get_vocab()
    return [[vocabulary.get(word, tokenizer.unk_token_id) for word in words] for words in sentences]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "name"), [("train", "onlstm-ptb-small"), *((part, name) for part in ("valid", "test") for name in CARDS)]
)
def test_penn_treebank_text_keeps_its_ids(name, part, shared_dir):
    lines = (shared_dir / "data" / "ptb" / f"{part}.txt").read_text().split("\n")
    ids = released(name)(lines)["input_ids"]
    assert ids == looked_up(released(name), map(str.split, lines))


def test_words_of_gold_trees_keep_their_ids(shared_dir):
    tokenizer = released()
    gold = read_treebank(shared_dir / "data" / "wsj_sample" / "wsj_0001-0199.mrg")
    for tree, ids in zip(gold, looked_up(tokenizer, [tree.words for tree in gold]), strict=True):
        assert encode_words(tokenizer, list(tree.words)) == (ids, list(range(len(tree.words))))


def test_released_tokenizers_equal_those_of_the_recipes():
    for name in [*CARDS, "onlstm-es-small-distilled", "onlstm-nl-small-distilled", "onlstm-pt-small-distilled"]:
        saved = json.loads((PROJECT_ROOT / "model_cards" / name / "tokenizer.json").read_text())
        options = {"lowercase": True, "digits_to_n": True, "drop_punctuation": True, "padding_side": "left"}
        split = "treebank" if name in CARDS else "whitespace"
        built = build_word_tokenizer(vocabulary=saved["model"]["vocab"], split=split, **options)
        assert json.loads(built.backend_tokenizer.to_str()) == saved


TYPED = {
    # newspapers
    "“We don’t expect a loss,” Mr. Smith said Tuesday.": "“ We do n’t expect a loss , ” Mr. Smith said Tuesday .",
    "Shares of AT&T rose 9.8% to $4.50—a record—in New York.": (
        "Shares of AT&T rose 9.8 % to $ 4.50 — a record — in New York ."
    ),
    "U.S. STOCKS FALL AS INFLATION TOPS 5%": "U.S. STOCKS FALL AS INFLATION TOPS 5 %",
    "The Company Said It Expects To Report A Loss.": "The Company Said It Expects To Report A Loss .",
    "The companies' 1986–87 profits (about £1,000 million) fell 3 1/2%.": (
        "The companies ' 1986–87 profits ( about £ 1,000 million ) fell 3 1/2 % ."
    ),
    # chat
    "lol that's sooo good 🙂🙂 can't wait!!!": "lol that 's sooo good 🙂🙂 ca n't wait !!!",
    "y'all seen this?? https://example.com/a_(b)?c=1, wow…": (
        "y'all seen this ?? https://example.com/a_(b)?c=1 , wow …"
    ),
    # e-mail
    "Dear Dr. Jones, please send 'the report' to joe@example.org by 5:30 p.m.": (
        "Dear Dr. Jones , please send ' the report ' to joe@example.org by 5:30 p.m."
    ),
    "I cannot [sic] come -- neither can Ann (she's in the U.K.); sorry!": (
        "I can not [ sic ] come -- neither can Ann ( she 's in the U.K. ) ; sorry !"
    ),
    "In the '80s, 30-year bonds paid US$5\t{No. 1}.": "In the '80s , 30-year bonds paid US$ 5 { No. 1 } .",
}


@pytest.mark.parametrize("text", TYPED)
def test_leaves_are_substrings_of_the_typed_text(text):
    words, ids, _, offsets = encode_sentence(released(), text)
    marks = [text[start:end] for gap in mark_offsets(text, offsets) for start, end in gap]
    parts = TYPED[text].split()
    assert words == [text[start:end] for start, end in offsets]
    assert sorted([*words, *marks]) == sorted(parts)
    assert not [mark for mark in marks if any(map(str.isalnum, mark)) or mark in "$%£&"]
    assert len(ids) == len(words)


@pytest.mark.parametrize(
    "text, spelt",
    [
        ("The company, which makes cars, said it expects to report a loss.", None),
        ("“It’s the companies’ plan,” Mr. Smith said. So do I.", "it 's the companies ' plan mr. smith said so do i"),
        ("He paid $4.5 million, or 9.8%, in the U.S.", "he paid $ N million or N N in the u.s."),
        ("a non-U.S. 1/2-year, mid-1990s plan", "a non-u.s. 1\\/2-year mid-1990s plan"),
        ("HE CANNOT; I'M SURE. 'Quoted' words' end", "he can not i 'm sure quoted words ' end"),
        ("AT&T's No. 1 and the '80s. I said no. He's ill.", "at&t 's no. N and the '80s i said no he 's ill"),
        ("See fig. 3, pp. 5-7: Capt. Lee, Ph.D., ate figs.", "see fig. N pp. N capt. lee ph.d. ate figs"),
        ("No.5 (fig.3, Nos.1,000-2), casino.5 no.5a", "no. N fig. N nos. N casino.5 no. 5a"),
        ("[a](http://b.c)[d](www.e.f/g_(h)).", "a http://b.c d www.e.f\\/g_(h)"),
        (
            '<a href="http://x.y/2">the link</a> (http://b.c/1), http://b.c—it',
            "a href http://x.y\\/2 the link a http://b.c\\/1 http://b.c it",
        ),
        ("I don´t, it`s", "i do n't it 's"),
        ("ﬁnally the oﬃce ﬂow, oﬀ the baﬄe, 5 µm", "finally the office flow off the baffle N μm"),
        ("20$, 10$-20$, US$5 or HK$ 3", "N $ N $ N $ us$ N or hk$ N"),
        ("profits rose to 5. They fell .5", "profits rose to N they fell N"),
        ("£5 -LRB- a #hashtag -RRB- # 3", "# N a hashtag # N"),
        ("co\u00adoperate up\u2011to-date\u200b now", "cooperate up-to-date now"),
        ("\u2066ri\u200eght\u2069 wid\u200dth, shelf\u200cful", "right width shelfful"),
    ],
)
def test_text_is_normalised_like_the_penn_treebank_text(text, spelt):
    spelt = spelt or text.lower().replace(",", "").replace(".", "")
    splitter = released().backend_tokenizer
    pieces = splitter.pre_tokenizer.pre_tokenize_str(splitter.normalizer.normalize_str(text))
    assert [piece for piece, _ in pieces] == spelt.split()


def test_punctuation_alone_has_no_words():
    for text in ["", " ", "\t", ". , ; : ! ?", "“”‘", "— – -", "()[]{}", "🙂 👩‍👩‍👧 🇩🇪", "**", "…", "€ © ™"]:
        assert encode_sentence(released(), text) == ([], [], [], [])


@pytest.mark.parametrize("folder", [PROJECT_ROOT / RELEASED_MODEL, PACKED_MODEL], ids=["released", "packed"])
def test_the_default_model_has_the_same_words(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    unknown = set()
    for text in TYPED:
        words, ids, word_of_token, offsets = encode_sentence(tokenizer, text)
        expected, _, _, places = encode_sentence(released(), text)
        assert (words, offsets) == (expected, places)
        pairs = zip(word_of_token, ids, strict=True)
        unknown |= {words[index] for index, token in pairs if token == tokenizer.unk_token_id}
    assert unknown == {"https://example.com/a_(b)?c=1"}  # its signs are rare within words


def test_offsets_of_autotokenizer_refer_to_the_typed_text():
    text = "“Don’t,” he said\u00ad; IT is\u200b 5 U.S. cats’ oﬃce ﬂoor"
    encoding = released()(text, return_offsets_mapping=True)
    words = [text[start:end] for start, end in encoding["offset_mapping"]]
    assert words == ["Do", "n’t", "he", "said", "IT", "is", "5", "U.S.", "cats", "’", "oﬃce", "ﬂoor"]


@pytest.mark.parametrize("text", TYPED)
def test_a_forward_pass_with_a_bos_token_equals_parse(text):
    model, tokenizer = load_checkpoint(str(WORD_LEVEL))
    asking = AutoTokenizer.from_pretrained(WORD_LEVEL, add_bos_token=True)
    with torch.no_grad():
        outputs = model(**asking(text, return_tensors="pt"), output_distances=True)
    found = outputs.forget_distances[model.parse_layer, 0, 1:].tolist()
    assert found == pytest.approx(model.parse(text, tokenizer).distances, abs=1e-6)


@pytest.mark.parametrize("punctuation", ["drop", "attach", "cue"])
def test_parse_pipeline_and_command_give_the_same_records(punctuation, capsys):
    model, tokenizer = load_checkpoint(str(PACKED_MODEL))
    texts = [*TYPED, "", "()[]{} (the) [cat]", "\t the\tcat "]
    trees = model.parse(texts, tokenizer, punctuation=punctuation)
    records = [tree.to_record(text) for tree, text in zip(trees, texts, strict=True)]
    for record, text in zip(records, texts, strict=True):
        assert record["words"] == [text[start:end] for start, end in record["offsets"]]
        assert all(span["text"] == text[span["start"] : span["end"]] for span in record["spans"])
        read_again = InducedTree.from_bracket(record["brackets"])
        assert list(read_again.words) == record["words"]
        assert read_again.spans() == [(span["word_start"], span["word_end"]) for span in record["spans"]]
    parse = pipeline("constituency-parsing", model=model, tokenizer=tokenizer)
    assert approximately(parse(texts, punctuation=punctuation)) == approximately(records)
    command = ["parse", "--model", str(PACKED_MODEL), "--dtype", "float32", "--format", "jsonl"]
    assert main([*command, "--punctuation", punctuation, *texts]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.pop("line") for line in lines] == list(range(1, len(texts) + 1))
    assert {line.pop("start") for line in lines} == {0}
    assert approximately(lines) == approximately(records)


def approximately(records):
    """Rounds distances, which depend slightly on the batch size."""
    return [record | {"distances": [value and round(value, 3) for value in record["distances"]]} for record in records]


@pytest.mark.parametrize("text", ["一只猫坐在垫子上看着我们", "我們上學。"])
def test_text_without_spaces_gets_a_warning(text, monkeypatch):
    warnings = []
    monkeypatch.setattr("onlstm_hf.parsing.sentences.logger.warning_once", warnings.append)
    for segmented in ("the cat sat 一 只 猫", "我們 常常 一起 上學", "我們常常 上學"):
        read_text(released(), segmented)
    assert not warnings
    read_text(released(), text)
    assert "segment" in warnings[0]


def test_special_and_added_tokens_do_not_split_words():
    tokenizer = build_word_tokenizer(["a b sat newwordly"])
    tokenizer.add_tokens(["newword"])
    words, ids, word_of_token, _ = encode_sentence(tokenizer, "a <unk>b sat newwordly")
    assert words == ["a", "<unk>b", "sat", "newwordly"]
    assert sorted(set(word_of_token)) == [0, 1, 2, 3]
    assert len(ids) == len(word_of_token)
