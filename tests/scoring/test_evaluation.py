import math

import pytest
import torch

from onlstm_hf import build_word_tokenizer
from onlstm_hf.scoring import sentences as sentence_scores
from onlstm_hf.scoring.sentences import score_encoded, score_sentences
from onlstm_hf.scoring.stream import StreamScore, encode_sentence_stream, stream_log_likelihood
from tests.helpers.log_probabilities import sequence_log_probability, token_log_probabilities
from tests.helpers.tiny_models import KINDS

VOCAB_SIZE, EOS = 11, 4
LENGTH = 23


@pytest.fixture
def model():
    return KINDS["onlstm"].make(vocab_size=VOCAB_SIZE, num_hidden_layers=2, eos_token_id=EOS)


@pytest.fixture
def stream():
    return torch.randint(VOCAB_SIZE, (LENGTH,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("chunk_length", [1, 3, LENGTH - 1, LENGTH, 100])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 7, LENGTH, 100])
def test_each_row_of_a_batch_is_a_separate_stream_for_any_chunk_length(model, stream, batch_size, chunk_length):
    length = math.ceil(LENGTH / min(batch_size, LENGTH))
    ids = [EOS, *stream.tolist()]
    rows = [ids[start : start + length + 1] for start in range(0, LENGTH, length)]
    expected = sum(sequence_log_probability(model.double(), row) for row in rows)
    score = stream_log_likelihood(model, stream, batch_size, chunk_length)
    assert score.num_tokens == LENGTH
    assert score.total_log_likelihood == pytest.approx(expected, rel=1e-12)
    single = stream_log_likelihood(model.float(), stream, batch_size, chunk_length)
    assert single.total_log_likelihood == pytest.approx(expected, rel=1e-5)


def test_the_first_of_several_eos_ids_precedes_the_text(model, stream):
    expected = stream_log_likelihood(model, stream)
    model.config.eos_token_id = [EOS, 7]
    assert stream_log_likelihood(model, stream) == expected


def test_dropout_is_off_and_the_mode_is_restored(model, stream):
    expected = stream_log_likelihood(model, stream)
    assert not model.training
    assert stream_log_likelihood(model.train(), stream) == expected
    assert model.training and not torch.is_inference_mode_enabled()


def test_nan_weights_are_reported_at_the_first_chunk(model, stream, monkeypatch):
    with torch.no_grad():
        model.model.layers[1].recurrent_projection.weight[0, 0] = math.nan
    num_calls = 0

    def count(*_):
        nonlocal num_calls
        num_calls += 1

    model.train().register_forward_hook(count)
    with pytest.raises(ValueError, match="weights contain NaN or infinity"):
        stream_log_likelihood(model, stream, chunk_length=4)
    assert num_calls == 1 and model.training


@pytest.mark.parametrize(
    ("input_ids", "message"),
    [
        ([], "at least one token"),
        ([[1, 2], [3, 4]], r"shape \[2, 2\]"),
        ([1, VOCAB_SIZE, 2], f"id {VOCAB_SIZE}, which is outside the vocabulary of {VOCAB_SIZE}"),
        ([1, -100, 2], f"id -100, which is outside the vocabulary of {VOCAB_SIZE}"),
    ],
)
def test_invalid_streams_are_refused(model, input_ids, message):
    with pytest.raises(ValueError, match=message):
        stream_log_likelihood(model, input_ids)
    for option in ("batch_size", "chunk_length"):
        with pytest.raises(ValueError, match=f"{option}.* must be at least 1, not"):
            stream_log_likelihood(model, [1], **{option: 0})


def test_a_model_without_eos_is_refused(model, stream):
    model.config.eos_token_id = None
    with pytest.raises(ValueError, match="eos_token_id"):
        stream_log_likelihood(model, stream)


def test_no_sentences_are_an_empty_stream():
    tokenizer = build_word_tokenizer(["the cat"])
    assert encode_sentence_stream(tokenizer, []).tolist() == []
    assert encode_sentence_stream(tokenizer, [""]).tolist() == [tokenizer.eos_token_id]


def test_loss_and_perplexity_are_means_of_tokens():
    score = StreamScore(-30 * math.log(7), 30)
    assert (score.loss, score.perplexity) == (pytest.approx(math.log(7)), pytest.approx(7))
    assert StreamScore(-1e6, 10).perplexity == math.inf


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("max_tokens", [2048, 4])
def test_sentence_scores_equal_those_of_single_steps(monkeypatch, model, batch_size, max_tokens):
    monkeypatch.setattr(sentence_scores, "MAX_TOKENS_PER_CALL", max_tokens)
    vocabulary = ["the", "cat", "sat", "on", "<eos>", "<unk>", "mat", "old", "dog", "that", "saw"]
    tokenizer = build_word_tokenizer(vocabulary=vocabulary, pad_token="<eos>")
    sentences = ["the cat sat on the mat", "it saw dogs", "dog", "the old dog that the cat saw sat on the old mat", ""]
    scores = score_sentences(model, tokenizer, sentences, batch_size)
    for sentence, score in zip(sentences, scores, strict=True):
        ids = tokenizer(sentence, add_special_tokens=False)["input_ids"]
        assert score.log_probabilities == pytest.approx(token_log_probabilities(model, [EOS, *ids, EOS]), abs=1e-5)
        assert score.tokens == [*tokenizer.convert_ids_to_tokens(ids), "<eos>"]
        stream = stream_log_likelihood(model, torch.tensor([*ids, EOS]))
        assert score.total().total_log_likelihood == pytest.approx(stream.total_log_likelihood, abs=1e-4)
    encoded = tokenizer(sentences, add_special_tokens=False)["input_ids"]
    for (score, distances), expected, ids in zip(
        score_encoded(model, tokenizer, encoded, batch_size, with_distances=True), scores, encoded, strict=True
    ):
        assert score == expected
        for layer, of_layer in enumerate(distances):
            assert of_layer == pytest.approx(model.parse([ids], layer=layer)[0].distances, abs=1e-6)
