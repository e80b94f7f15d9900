import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.adaptation.cache_pointer import CachePointer, CacheWindow
from eval.adaptation.dynamic_evaluation import adapted_log_probabilities
from onlstm_hf.scoring.stream import stream_log_likelihood
from tests.helpers.tiny_models import KINDS, VOCAB_SIZE

EOS, LENGTH = 4, 37
CACHES = [CachePointer(*own) for own in ((5, 0.3, 0.2), (5, 0.3, 0.9), (1, 1.0, 0.1), (1000, 0.0, 0.5))]


@torch.no_grad()
def read_row(model, row, first_id):
    """Reads word by word, and returns hidden state, word and its probability at each position."""
    steps, state, previous = [], None, first_id
    for word in row.tolist():
        output = model.model(torch.tensor([[previous]]), state=state, use_cache=True)
        probabilities = model.lm_head(output.last_hidden_state)[0, 0].softmax(dim=-1)
        steps.append((output.last_hidden_state[0, 0], word, probabilities[word].item()))
        state, previous = output.state, word
    return steps


@pytest.mark.parametrize("chunk_length", [1, 4, 100])
def test_probabilities_equal_a_loop_over_the_past(model, stream, with_cache, chunk_length):
    found = adapted_log_probabilities(model, stream, None, CACHES, chunk_length=chunk_length)
    steps = read_row(model, stream, EOS)
    for cache, log_probabilities in zip(CACHES, found, strict=True):
        assert log_probabilities.tolist() == pytest.approx(with_cache(steps, cache), rel=1e-9)


def test_each_row_has_its_own_cache(stream, with_cache):
    model, cache = KINDS["onlstm"].make(eos_token_id=EOS).double(), CACHES[0]
    (found,) = adapted_log_probabilities(model, stream, None, [cache], batch_size=3, chunk_length=4)
    expected = []
    for start in range(0, LENGTH, 13):
        first_id = stream[start - 1].item() if start else EOS
        expected += with_cache(read_row(model, stream[start : start + 13], first_id), cache)
    assert found.tolist() == pytest.approx(expected, rel=1e-9)


def test_weight_zero_gives_the_model_probabilities(stream):
    model = KINDS["lstm"].make(eos_token_id=EOS)
    (found,) = adapted_log_probabilities(model, stream, None, [CachePointer(5, 0.3, 0.0)])
    assert found.sum().item() == pytest.approx(stream_log_likelihood(model, stream).total_log_likelihood, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.floats(0, 2), st.floats(0.01, 0.99), st.integers(0, LENGTH - 2))
def test_the_probabilities_of_all_words_sum_to_one(size, flatness, weight, position):
    model = KINDS["gru"].make(eos_token_id=EOS).double()
    past = torch.randint(VOCAB_SIZE, (position,), generator=torch.Generator().manual_seed(1))
    total = 0.0
    for word in range(VOCAB_SIZE):
        text = torch.cat([past, torch.tensor([word])])
        (found,) = adapted_log_probabilities(model, text, None, [CachePointer(size, flatness, weight)], chunk_length=5)
        total += found[-1].exp().item()
    assert total == pytest.approx(1)


def test_a_window_keeps_no_more_memory_than_its_size():
    window = CacheWindow([CachePointer(3, 0.5, 0.5), CachePointer(2, 0.5, 0.5)])
    for start in range(0, 100, 10):
        words = torch.arange(start, start + 10)[None]
        window.mix(torch.zeros(1, 10).double(), torch.zeros(1, 10, 2), words)
    assert window.words.tolist() == [[97, 98, 99]]
    assert window.hidden_states.untyped_storage().nbytes() == 3 * 2 * 4


def test_bfloat16_is_within_one_percent(stream):
    model = KINDS["onlstm"].make(eos_token_id=EOS)
    (expected,) = adapted_log_probabilities(model, stream, None, CACHES[:1])
    (found,) = adapted_log_probabilities(model.to(torch.bfloat16), stream, None, CACHES[:1])
    assert found.sum().item() == pytest.approx(expected.sum().item(), rel=0.01)
