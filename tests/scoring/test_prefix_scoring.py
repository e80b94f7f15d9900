import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

from onlstm_hf.scoring.prefixes import sequence_log_probabilities
from tests.helpers.log_probabilities import sequence_log_probability
from tests.helpers.tiny_models import MODEL_TYPES, VOCAB_SIZE

SEQUENCES = [[0, 1, 2, 3], [0, 1, 2, 4, 5], [0, 1, 2, 3], [0, 6], [0], [0, 1], [7, 1, 2, 3], [0, 1, 2]]


def make_gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB_SIZE, n_embd=8, n_layer=2, n_head=2, n_positions=16)).eval()


class ForgetfulMamba(MambaForCausalLM):
    """A model without a state or cache."""

    def forward(self, input_ids, **kwargs):
        return super().forward(input_ids, **kwargs | {"use_cache": False})


def make_forgetful_mamba():
    torch.manual_seed(0)
    return ForgetfulMamba(MambaConfig(vocab_size=VOCAB_SIZE, hidden_size=8, num_hidden_layers=1, state_size=4)).eval()


MODELS = {**{name: kind.make for name, kind in MODEL_TYPES.items()}, "gpt2": make_gpt2, "mamba": make_forgetful_mamba}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_scores_equal_those_of_each_sequence_alone(model, batch_size):
    expected = [sequence_log_probability(model, sequence) for sequence in SEQUENCES]
    scores = sequence_log_probabilities(model, SEQUENCES, batch_size)
    assert scores == pytest.approx(expected, abs=1e-4) and scores[0] == scores[2]


tokens = st.integers(0, 2)  # few different tokens, so that prefixes are shared


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(tokens, min_size=1, max_size=6), min_size=1, max_size=12), st.integers(1, 12))
def test_scores_do_not_depend_on_order_and_batch(sequences, batch_size):
    model = MODELS["onlstm"]()
    expected = [sequence_log_probability(model, sequence) for sequence in sequences]
    assert sequence_log_probabilities(model, sequences, batch_size) == pytest.approx(expected, abs=1e-4)


def test_a_model_in_float64_scores_in_float64():
    model = MODELS["onlstm"]().double()
    expected = [sequence_log_probability(model, sequence) for sequence in SEQUENCES]
    assert sequence_log_probabilities(model, SEQUENCES, 3) == pytest.approx(expected, rel=1e-12)


def test_every_prefix_is_computed_once(model, monkeypatch):
    num_tokens = []
    forward = type(model).forward

    def count(self, input_ids, **kwargs):
        num_tokens.append(input_ids.numel())
        return forward(self, input_ids, **kwargs)

    monkeypatch.setattr(type(model), "forward", count)
    sequence_log_probabilities(model, SEQUENCES)
    prefixes = {tuple(sequence[:length]) for sequence in SEQUENCES for length in range(1, len(sequence))}
    keeps_nothing = isinstance(model, ForgetfulMamba)
    assert sum(num_tokens) == (sum(map(len, prefixes)) if keeps_nothing else len(prefixes))


def test_no_sequences_have_no_scores_and_the_mode_is_restored():
    model = MODELS["onlstm"]().train()
    assert sequence_log_probabilities(model, []) == []
    sequence_log_probabilities(model, SEQUENCES)
    assert model.training


@pytest.mark.parametrize("sequence, batch_size", [([], 2), ([0, VOCAB_SIZE], 2), ([0, -1], 2), ([0, 1], 0)])
def test_bad_input_is_refused(sequence, batch_size):
    with pytest.raises(ValueError, match=f"is empty|outside the vocabulary of {VOCAB_SIZE}|at least 1, not 0"):
        sequence_log_probabilities(MODELS["gpt2"](), [[0, 1], sequence], batch_size)


def test_nan_weights_are_reported():
    model = MODELS["gpt2"]()
    with torch.no_grad():
        model.transformer.wte.weight[1, 0] = math.nan
    with pytest.raises(ValueError, match="weights contain NaN"):
        sequence_log_probabilities(model, SEQUENCES)
