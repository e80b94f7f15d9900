import sys
from unittest import mock

import numpy
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

from onlstm_hf import build_word_tokenizer, tree_from_distances
from onlstm_hf.parsing import mixin as parsing
from onlstm_hf.parsing import sentences as batching
from onlstm_hf.utils import iteration
from tests.helpers.tiny_models import KINDS
from tests.text.test_word_alignment import byte_level_bpe

WORDS = [f"w{index}" for index in range(40)]
SENTENCES = st.lists(st.lists(st.sampled_from([*WORDS, "unseen", "🐈"]), max_size=9), max_size=12)


def tiny_model(tokenizer, **options):
    """Returns a model whose large random weights give each word another distance."""
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    return KINDS["onlstm"].make(**{"vocab_size": len(tokenizer), **ids, **options})


TOKENIZER = build_word_tokenizer(vocabulary=["<eos>", "<unk>", "<pad>", *WORDS])
MODEL = tiny_model(TOKENIZER)


@pytest.fixture
def model():
    return tiny_model(TOKENIZER)


def some_words(num_words, seed=0):
    choices = numpy.random.default_rng(seed).integers(len(WORDS), size=num_words)
    return [WORDS[choice] for choice in choices]


@torch.no_grad()
def tokens_distances(model, ids, layer=1):
    """Computes the definition: forget distances of the tokens after one <eos>."""
    output = model(torch.tensor([[model.config.eos_token_id, *ids]]), output_distances=True)
    return output.forget_distances[layer, 0, 1:].tolist()


def expected_tree(model, words, layer=1, branching_bias="right"):
    ids = TOKENIZER.convert_tokens_to_ids(words)
    return tree_from_distances(tokens_distances(model, ids, layer), words, branching_bias) if words else None


class ModelCalls:
    """Records the shape of each batch of a model."""

    def __init__(self, model, monkeypatch):
        self.shapes = []
        compute = model.syntactic_distances

        def record(input_ids, **options):
            self.shapes.append(tuple(input_ids.shape))
            return compute(input_ids, **options)

        monkeypatch.setattr(model, "syntactic_distances", record)


def test_strings_words_and_ids_give_the_tree_of_the_models_distances():
    words = some_words(8)
    ids = TOKENIZER.convert_tokens_to_ids(words)
    expected = expected_tree(MODEL, words)
    forms = [" ".join(words), words, tuple(words), ids, torch.tensor(ids), numpy.array(ids)]
    trees = MODEL.parse(forms, TOKENIZER)
    assert trees == [expected] * len(forms)
    assert all(tree.distances == pytest.approx(expected.distances, abs=1e-6) for tree in trees)
    for sentence in (" ".join(words), ids, torch.tensor(ids), numpy.array(ids)):
        assert MODEL.parse(sentence, TOKENIZER) == expected


def test_ids_need_no_tokenizer_and_give_numbers_as_leaves():
    tree = MODEL.parse([5, 9, 7, 3])
    assert tree.words == ("5", "9", "7", "3")
    assert tree.spans() == MODEL.parse([5, 9, 7, 3], TOKENIZER).spans()
    assert MODEL.parse([[5, 9], []])[1].words == ()
    larger = tiny_model(TOKENIZER, vocab_size=len(TOKENIZER) + 3)
    assert larger.parse([5, len(TOKENIZER)], TOKENIZER).words == ("w2", str(len(TOKENIZER)))


@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("config_knows_padding", [True, False])
def test_padding_and_eos_at_the_ends_of_a_row_are_not_words(padding_side, config_knows_padding):
    model = tiny_model(TOKENIZER, pad_token_id=2 if config_knows_padding else None)
    texts = ["w1 w2 w3 w4 w5", "w6", ""]
    ended, options = [f"<eos> {text} <eos>" for text in texts], {"padding": True, "return_tensors": "pt"}
    rows = TOKENIZER(ended, padding_side=padding_side, **options)["input_ids"]
    assert model.parse(rows, TOKENIZER) == model.parse(texts, TOKENIZER)


def test_eos_inside_a_row_of_ids_stays():
    assert MODEL.parse([0, 5, 0, 6, 0], TOKENIZER).words == ("w2", "<eos>", "w3")


def test_short_sentences_need_no_model():
    trees = MODEL.parse(["", "w1", [], ["w2"], "w1 w2", "   "], TOKENIZER)
    assert [tree.to_bracket() for tree in trees] == ["()", "(w1)", "()", "(w2)", "(w1 w2)", "()"]


def test_words_keep_their_spelling_and_unknown_words_have_the_distances_of_unk():
    text = "w1 unheard-of 👩‍👩‍👧 w2 (w3) ünï"
    tree = MODEL.parse(text, TOKENIZER)
    assert tree.words == tuple(text.split())
    unknown = MODEL.parse("w1 <unk> <unk> w2 <unk> <unk>", TOKENIZER)
    assert tree.spans() == unknown.spans() and tree.distances == unknown.distances


@pytest.mark.parametrize(
    "sentences",
    [None, 7, torch.tensor(3), TOKENIZER(["w1 w2"]), {"text": "w1"}, [None], [{"text": "w1"}], [["w1", 3]], [[1.5]]]
    + [[[True, False]], [True, False], torch.tensor([[True, False]])]
    + [pandas.DataFrame({"text": ["w1 w2"]}), b"w1 w2", [b"w1"], torch.zeros(1, 2, 3, dtype=torch.long)],
    ids=str,
)
def test_other_inputs_are_refused_with_the_expected_types(sentences):
    with pytest.raises(ValueError, match="must be a string"):
        MODEL.parse(sentences, TOKENIZER)


@pytest.mark.parametrize("sentences", ["w1 w2", ["w1"], [["w1"]]])
def test_words_without_a_tokenizer_are_refused(sentences):
    with pytest.raises(ValueError, match="needs the tokenizer"):
        MODEL.parse(sentences)


def test_without_eos_in_the_configuration_the_tokenizers_eos_or_the_empty_state_is_used():
    without_eos = tiny_model(TOKENIZER, eos_token_id=None)
    assert without_eos.parse("w1 w2 w3", TOKENIZER).distances == MODEL.parse("w1 w2 w3", TOKENIZER).distances
    with torch.no_grad():
        output = without_eos(torch.tensor([[5, 6, 7]]), output_distances=True)
    expected = output.forget_distances[1, 0].tolist()
    assert without_eos.parse([5, 6, 7]).distances == pytest.approx(expected, abs=1e-6)


def test_the_first_of_several_eos_ids_starts_a_sentence_and_all_end_it():
    model = tiny_model(TOKENIZER, eos_token_id=[0, 4])
    assert model.parse([4, 5, 6, 0, 4]).distances == MODEL.parse([5, 6]).distances


@settings(max_examples=25, deadline=None)
@given(SENTENCES, st.integers(1, 5))
def test_batches_give_the_trees_of_single_sentences_in_the_order_of_the_input(sentences, batch_size):
    with mock.patch.object(parsing, "BATCHES_PER_WINDOW", 2):
        trees = MODEL.parse(sentences, TOKENIZER, batch_size=batch_size)
    assert [list(tree.words) for tree in trees] == sentences
    for words, tree in zip(sentences, trees, strict=True):
        alone = expected_tree(MODEL, words)
        assert not words or (tree == alone and tree.distances == pytest.approx(alone.distances, abs=1e-6))


def test_a_batch_has_sentences_of_similar_length_and_few_enough_tokens(model, monkeypatch):
    monkeypatch.setattr(batching, "MAX_TOKENS_PER_BATCH", 100)
    calls = ModelCalls(model, monkeypatch)
    lengths = numpy.random.default_rng(0).integers(0, 60, size=200)
    model.parse([some_words(length) for length in lengths], TOKENIZER, batch_size=16)

    assert all(rows * (columns - 1) <= 100 and rows <= 16 for rows, columns in calls.shapes)
    assert sum(rows * columns for rows, columns in calls.shapes) < 1.05 * (lengths + 1).sum()


def test_the_input_is_read_one_window_at_a_time(model, monkeypatch):
    num_read = num_parsed = 0

    def sentences():
        nonlocal num_read
        for num_read in range(1, 5001):
            yield [3 + num_read % 40] * (num_read % 7)

    def count(batch, *arguments, **options):
        nonlocal num_parsed
        assert num_read - num_parsed <= 256
        num_parsed += len(batch)
        return compute(batch, *arguments, **options)

    compute = model._unit_distances
    monkeypatch.setattr(model, "_unit_distances", count)
    monkeypatch.setattr(parsing, "BATCHES_PER_WINDOW", 4)
    trees = model.parse(sentences(), progress=False)
    assert num_parsed == 5000
    assert [tree.words for tree in trees] == [(str(3 + n % 40),) * (n % 7) for n in range(1, 5001)]


def test_windows_of_long_sentences_have_fewer_sentences(model, monkeypatch):
    monkeypatch.setattr(parsing, "MAX_TOKENS_PER_WINDOW", 50)
    calls = ModelCalls(model, monkeypatch)
    sentences = [some_words(20, seed) for seed in range(7)]
    assert model.parse(sentences, TOKENIZER) == [expected_tree(MODEL, words) for words in sentences]
    assert calls.shapes == [(3, 21), (3, 21), (1, 21)]


@pytest.mark.parametrize("max_length", [1, 2, 7, 100, None])
def test_max_length_does_not_change_trees(model, monkeypatch, max_length):
    monkeypatch.setattr(parsing, "MAX_TOKENS_PER_BATCH", 9)  # the default
    sentences = [some_words(length, seed=length) for length in (13, 0, 1, 30, 6, 7)]
    calls = ModelCalls(model, monkeypatch)
    trees = model.parse(sentences, TOKENIZER, max_length=max_length)
    assert [tree for tree in trees if tree.words] == [expected_tree(MODEL, words) for words in sentences if words]
    assert all(columns <= (max_length or 9) for _, columns in calls.shapes)


@pytest.mark.parametrize("branching_bias", ["right", "none"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_tree_depends_on_layer_and_branching_bias(layer, branching_bias):
    words = some_words(12)
    expected = expected_tree(MODEL, words, layer, branching_bias)
    assert MODEL.parse([words], TOKENIZER, layer=layer, branching_bias=branching_bias) == [expected]
    by_default = tiny_model(TOKENIZER, parse_layer=layer)
    assert by_default.parse([words], TOKENIZER, branching_bias=branching_bias) == [expected]


def test_parse_layers_gives_the_trees_of_one_layer_or_of_all():
    sentences = [some_words(6), some_words(4, seed=1)]
    trees, by_layer = MODEL.parse_by_layer(sentences, TOKENIZER, layer=2, branching_bias="none")
    assert trees == [expected_tree(MODEL, words, 2, "none") for words in sentences]
    assert [name.partition(",")[0] for name in by_layer] == ["layer 1", "layer 2", "layer 3"]
    assert [name for name in by_layer if "makes the tree" in name] == ["layer 3, which makes the tree"]
    for layer, layer_trees in enumerate(by_layer.values()):
        assert layer_trees == [expected_tree(MODEL, words, layer, "none") for words in sentences]
    assert MODEL.parse_by_layer(sentences, TOKENIZER)[0] == MODEL.parse(sentences, TOKENIZER)
    with pytest.raises(ValueError, match="layer 7 does not exist: this model's layers are 0 to 2"):
        MODEL.parse_by_layer(sentences, TOKENIZER, layer=7)


def test_the_model_reads_a_sentence_once_for_all_layers(model, monkeypatch):
    sentences = [some_words(6), some_words(4, seed=1), []]
    expected = [model.parse(sentences, TOKENIZER, layer=layer) for layer in (2, 0, 1)]
    calls = ModelCalls(model, monkeypatch)
    trees = model.parse_layers(sentences, TOKENIZER, [2, 0, None])
    assert trees == expected
    assert [[tree.distances for tree in each] for each in trees] == [[tree.distances for tree in e] for e in expected]
    model.parse_by_layer(sentences, TOKENIZER)
    model.draw_distances(sentences[0], TOKENIZER)
    assert calls.shapes == [(3, 7), (3, 7), (1, 7)]


def test_the_caller_can_train_between_two_results(model):
    model.train()
    for sentence, (distances,) in model.sentence_distances([some_words(5), some_words(3)], TOKENIZER):
        assert len(sentence.units) == len(distances)
        assert model.training and not torch.is_inference_mode_enabled()


LARGER = build_word_tokenizer(vocabulary=[*TOKENIZER.get_vocab(), "one", "more"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 3}, "layer 3 does not exist"),
        ({"layer": -1}, "layer -1 does not exist"),
        ({"layer": 1.0}, "layer 1.0 does not exist"),
        ({"layer": True}, "layer True does not exist"),
        ({"layer": [0, 1]}, "layer .0, 1. does not exist"),
        ({"branching_bias": "left"}, "branching_bias"),
        ({"units": "letters"}, "units"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": "a"}, "max_length must be an integer of at least 1, not 'a'"),
        ({"batch_size": 2.5}, "batch_size must be an integer of at least 1, not 2.5"),
        ({"tokenizer": LARGER}, "tokenizer does not fit the model: it has 45 tokens.* 43"),
        ({"tokenizer": "some/folder"}, "tokenizer must be one of AutoTokenizer.from_pretrained, not str"),
    ],
)
def test_invalid_options_are_refused_before_reading(options, message):
    def never():
        raise AssertionError("a sentence was read")
        yield

    with pytest.raises(ValueError, match=message):
        MODEL.parse(never(), **{"tokenizer": TOKENIZER, **options})


def test_a_progress_bar_shows_on_long_jobs_or_on_request(monkeypatch, capsys):
    def shown(**options):
        MODEL.parse(iter([[5, 6]] * 10), **options)
        return "sentence" in capsys.readouterr().err

    assert shown(progress=True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert not shown() and not shown(progress=False)
    monkeypatch.setattr(iteration, "PROGRESS_AFTER_SECONDS", 0)
    assert shown() and not shown(progress=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert not shown()  # no bar in a file
    disable_progress_bar()
    try:
        assert not shown(progress=True)
    finally:
        enable_progress_bar()


@pytest.fixture(scope="module")
def bpe():
    return byte_level_bpe(eos_token="<|endoftext|>")


TEXT = "the unsettling cats sat 🐈 quietly"


def test_the_distance_of_a_word_is_that_of_its_first_subword(bpe):
    model = tiny_model(bpe)
    ids_of_words = [bpe(word if start == 0 else f" {word}")["input_ids"] for start, word in enumerate(TEXT.split())]
    distances = tokens_distances(model, sum(ids_of_words, []))
    assert len(distances) > len(ids_of_words)

    expected, position = [], 0
    for ids in ids_of_words:
        expected.append(distances[position])
        position += len(ids)
    for sentence in (TEXT, TEXT.split()):
        tree = model.parse([sentence], bpe)[0]
        assert tree.words == tuple(TEXT.split())
        assert tree.distances == pytest.approx(expected, abs=1e-6)


def test_units_tokens_gives_a_tree_over_subwords(bpe):
    model = tiny_model(bpe)
    ids = bpe(TEXT)["input_ids"]
    tree = model.parse(TEXT, bpe, units="tokens")
    assert tree.words == tuple(bpe.convert_ids_to_tokens(ids))
    assert tree == tree_from_distances(tokens_distances(model, ids), tree.words)


@pytest.mark.parametrize(("ids", "tokenizer"), [([5, 43], None), ([5, 43], TOKENIZER), ([-1, 5], None)])
def test_ids_outside_the_vocabulary_are_refused(ids, tokenizer, monkeypatch):
    monkeypatch.setattr(MODEL, "syntactic_distances", None)  # refused before the model reads them
    with pytest.raises(ValueError, match=r"the id (43|-1), which is outside the vocabulary of 43"):
        MODEL.parse(ids, tokenizer)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named_as_the_cause(model, value):
    with torch.no_grad():
        model.model.layers[0].recurrent_projection.weight[3, 3] = value
    with pytest.raises(ValueError, match="weights contain NaN or infinity"):
        model.parse("w1 w2 w3", TOKENIZER)


def test_dropout_is_off_while_parsing_and_the_mode_is_restored(model):
    words = some_words(20)
    expected = expected_tree(model, words)
    model.train()
    assert model.parse([words], TOKENIZER) == [expected]
    assert model.training
    with pytest.raises(ValueError, match="outside"):
        model.parse([[5], [99]])
    assert model.training and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    model.eval().parse([words], TOKENIZER)
    assert not model.training


def test_unknown_text_gives_one_warning_for_all_sentences(model, monkeypatch):
    said = []
    monkeypatch.setattr(parsing.logger, "warning_once", said.append)
    model.parse([" ".join(WORDS[:4]), "貓 坐 在 墊子 上"], TOKENIZER)
    assert len(said) == 1 and "Most words are unknown" in said[0]
    model.parse([" ".join(WORDS[:4]), "貓 坐"], TOKENIZER)
    model.parse(["", " ".join(WORDS)], TOKENIZER)
    model.parse([[0, 1, 1, 1]])
    model.parse("貓 坐", TOKENIZER, progress=False)
    assert len(said) == 1


def test_strings_of_several_sentences_give_a_warning_unless_they_are_few(model, monkeypatch):
    said = []
    monkeypatch.setattr(parsing.logger, "warning_once", said.append)
    texts = [*WORDS, "He left. She stayed."]
    model.parse(texts, TOKENIZER)
    model.parse(texts[-1], TOKENIZER, progress=False)
    model.parse([[texts[-1]]], TOKENIZER)
    assert not any("several sentences" in message for message in said)
    model.parse(texts[-1], TOKENIZER)
    assert "several sentences" in said[-1]
