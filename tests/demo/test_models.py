from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from onlstm_hf import build_word_tokenizer
from onlstm_hf.demo.models import MAX_CHARACTERS, MAX_SENTENCES, MAX_TOKENS, MAX_WORDS, Choices, DemoModels
from tests.helpers.demo_server import tiny_checkpoints
from tests.helpers.tiny_models import MODEL_TYPES

NASTY = """<script>alert(1)</script> </svg><img src=x onerror="alert(2)"> &amp; "quoted" 'x' {{7*7}} ${7*7} ]]>"""


def test_models_say_which_layers_there_are(models):
    assert list(models.checkpoints) == list(MODEL_TYPES)
    assert {name: models.layers(name) for name in MODEL_TYPES} == {"onlstm": [1, 2, 3], "prpn": [], "rnn": []}
    assert models.default_choices() == Choices("onlstm", layer=2, bias="right", treebank=True)
    assert models.default_choices("prpn").layer is None


def test_checkpoints_are_named_after_their_folders_or_by_their_paths_where_these_are_the_same(tmp_path):
    folders = [tmp_path / "first" / "onlstm", tmp_path / "second" / "onlstm"]
    model, tokenizer = tiny_checkpoints()["onlstm"]
    for folder in folders:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    assert list(DemoModels.load([str(folders[0])]).checkpoints) == ["onlstm"]
    assert list(DemoModels.load([str(folder) for folder in folders]).checkpoints) == [
        str(folder) for folder in folders
    ]


def test_the_address_of_a_result_brings_its_choices_back(models):
    for choices in [
        *(Choices("onlstm", layer, bias, layer == 1) for layer in (1, 2, 3) for bias in ("right", "none", "ranges")),
        Choices("prpn", bias="ranges"),
        Choices("onlstm", 1, beside="layers"),
        Choices("onlstm", 1, beside="prpn"),
        Choices("rnn", treebank=False),
    ]:
        fields = dict(parse_qsl(choices.link("./", text=NASTY).partition("?")[2]))
        assert fields["text"] == NASTY
        assert models.choices(fields) == choices
    assert models.choices({}) == models.default_choices()


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"model": "gpt"}, "no model 'gpt' here; there is onlstm, prpn, rnn"),
        ({"layer": "4"}, "no layer '4' here; there is 1, 2, 3"),
        ({"model": "rnn", "layer": "1"}, "none to choose"),
        ({"bias": "left"}, "there is right, none, ranges"),
        ({"treebank": "yes"}, "there is 0, 1"),
        ({"beside": "rnn"}, "there is layers, onlstm, prpn"),
    ],
)
def test_choices_that_do_not_exist_are_named_with_those_that_do(models, fields, message):
    with pytest.raises(ValueError, match=message):
        models.choices(fields)


def test_the_choices_reach_the_model(models):
    choices = Choices("onlstm", layer=1, bias="none", treebank=False)
    ((part, analysis),) = models.analyze("The old cat sat on it", choices)
    model, tokenizer = models.checkpoints["onlstm"]
    assert part == "The old cat sat on it"
    assert analysis.tree == model.parse(part, tokenizer, layer=0, branching_bias="none")
    ((_, spelt),) = models.analyze("The old cat sat on it.", replace(choices, treebank=True))
    assert spelt.reading.words == ("the", "old", "cat", "sat", "on", "it")
    assert analysis.reading.unknown_words == ("The",)


def test_numbers_signs_and_apostrophes_are_read_alike_in_sentences_and_in_gold_trees():
    model, _ = tiny_checkpoints()["onlstm"]
    words = ["<eos>", "<unk>", "it", "'s", "do", "n't", "$", "N", "billion", "of", "cat", "the", "a"]
    models = DemoModels({"onlstm": (model, build_word_tokenizer(vocabulary=words, pad_token="<eos>"))})
    ((_, sentence), (_, tree)) = models.analyze(
        "It’s $1.2 billion.\n(S (NP It’s) (VP (NP $ 1.2 billion)) .)", models.default_choices()
    )
    assert sentence.reading.words == tree.reading.words == ("it", "'s", "$", "N", "billion")
    assert not any(sentence.reading.is_unknown)
    assert tree.gold.constituents == (("S", 0, 5), ("VP", 2, 5), ("NP", 2, 5))
    ((_, tagged),) = models.analyze(
        "(S (NP (PRP It)) (VP (VBZ 's) (QP ($ $) (CD 1.2) (CD billion))) (. .))", models.default_choices()
    )
    assert tagged.reading.words == ("it", "'s", "N", "billion")  # as the protocol of the papers has it


def test_signs_that_the_vocabulary_lacks_are_left_out(models):
    ((_, analysis),) = models.analyze("$1.2 of it", models.default_choices())
    assert analysis.reading.words == ("N", "of", "it")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no sentence yet"),
        (" \n ", "no sentence yet"),
        ("the cat\n...", "without words"),
        ("a" * (MAX_CHARACTERS + 1), f"at most {MAX_CHARACTERS:,} can be read"),
        ("it\n" * (MAX_SENTENCES + 1), f"at most {MAX_SENTENCES} can be parsed"),
        ("it sat\n" * 2 + "\n".join(["the " * MAX_WORDS] * 3), f"has {4 + 3 * MAX_WORDS} words.*at most {MAX_TOKENS}"),
        ("cat " * (MAX_WORDS + 1), f"has {MAX_WORDS + 1} words; at most {MAX_WORDS}"),
        ("(" + "cat " * (MAX_WORDS + 1) + ")", f"has {MAX_WORDS + 1} words; at most {MAX_WORDS}"),
        ("(the cat", "never closed"),
    ],
)
def test_texts_beyond_the_limits_are_refused_with_the_limit(models, text, message):
    with pytest.raises(ValueError, match=message):
        models.analyze(text, models.default_choices())
    if "(" not in text and "\n" not in text:
        with pytest.raises(ValueError, match="at most|without words"):
            models.compare("the cat sat", text, models.default_choices())


def test_texts_at_the_limits_are_parsed(models):
    for num_sentences in (MAX_TOKENS // MAX_WORDS, MAX_SENTENCES):
        text = "\n".join(["cat " * min(MAX_WORDS, MAX_TOKENS // num_sentences)] * num_sentences)
        assert len(models.analyze(text, models.default_choices())) == num_sentences
