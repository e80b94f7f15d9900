"""Language models whose probabilities are a mixture of softmaxes (Yang et al. 2018)."""

import pytest
import torch

from tests.helpers.tiny_models import AWD_LSTMS, VOCAB_SIZE

MIXTURE = {"num_softmaxes": 3}


@pytest.fixture
def model(kind):
    return kind.make(**MIXTURE)


def mixed_probabilities(model, hidden_states: torch.Tensor) -> torch.Tensor:
    """Computes the equations of the paper by component."""
    mixture, head = model.softmax_mixture, model.lm_head
    priors = (hidden_states @ mixture.prior_projection.weight.T).softmax(-1)
    size = model.config.embedding_size
    probabilities = 0
    for component in range(model.config.num_softmaxes):
        part = slice(component * size, (component + 1) * size)
        weight, bias = mixture.latent_projection.weight[part], mixture.latent_projection.bias[part]
        scores = (hidden_states @ weight.T + bias).tanh() @ head.weight.T + head.bias
        probabilities = probabilities + priors[..., component, None] * scores.softmax(-1)
    return probabilities


def test_logits_are_log_probabilities_by_the_equations(model, input_ids):
    model = model.double()
    with torch.no_grad():
        logits = model(input_ids).logits
        expected = mixed_probabilities(model, model.model(input_ids).last_hidden_state)
    torch.testing.assert_close(logits.exp(), expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(logits.logsumexp(-1), torch.zeros(3, 6, dtype=torch.float64))


def test_log_probabilities_have_a_higher_rank_than_a_single_softmax(input_ids):
    """Log probabilities of one softmax have rank at most `embedding_size + 2`, the softmax bottleneck."""

    def rank(model, contexts):
        with torch.no_grad():
            return torch.linalg.matrix_rank(model(contexts).logits.log_softmax(-1).flatten(0, 1)).item()

    kind, sizes = AWD_LSTMS["lstm"], {"vocab_size": 40, "embedding_size": 4}
    contexts = torch.randint(40, (8, 10), generator=torch.Generator().manual_seed(0))
    assert rank(kind.make(**sizes).double(), contexts) <= 6
    assert rank(kind.make(**sizes, **MIXTURE).double(), contexts) > 12


def test_latents_have_one_dropout_mask_for_all_positions_in_training():
    model = AWD_LSTMS["lstm"].make(**AWD_LSTMS["lstm"].no_dropout, **MIXTURE, latent_dropout=0.5)
    hidden_states = torch.rand(2, 7, model.config.output_size)
    assert (model.softmax_mixture.components(hidden_states)[0] != 0).all()
    latents, _ = model.train().softmax_mixture.components(hidden_states)
    dropped = latents == 0
    assert dropped.any() and not dropped.all()
    assert (dropped == dropped[:, :1]).all()
    assert not (dropped[0] == dropped[1]).all()


@pytest.mark.parametrize("kind", list(AWD_LSTMS), indirect=True)
def test_the_last_layer_of_a_mixture_may_have_any_size(kind, input_ids):
    model = kind.make(**MIXTURE, layer_sizes=[12, 12, 20])
    assert model.lm_head.weight is model.model.embeddings.weight
    assert model(input_ids, labels=input_ids, skip_logits=True).loss.isfinite()
    with pytest.raises(ValueError, match="mix softmaxes"):
        kind.config(layer_sizes=[12, 12, 20])


def test_new_words_enter_all_components(model, input_ids):
    model.resize_token_embeddings(VOCAB_SIZE + 2, mean_resizing=False)
    with torch.no_grad():
        logits = model(input_ids + 2).logits
    assert logits.shape == (3, 6, VOCAB_SIZE + 2)
    torch.testing.assert_close(logits.logsumexp(-1), torch.zeros(3, 6))
