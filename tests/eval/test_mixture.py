"""Mixture weights: EM finds the same optimum as a general optimiser."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from eval.evaluate_lm import mixed_log_probabilities, mixture_weights


def drawn(num_models, num_tokens, seed=0):
    """Log probabilities of tokens for which no model is always best."""
    generator = np.random.default_rng(seed)
    return torch.from_numpy(np.log(generator.beta(0.4, 3.0, (num_models, num_tokens)) + 1e-6))


def mean_loss(weights, log_probabilities):
    return -np.log(np.asarray(weights) @ log_probabilities.exp().numpy()).mean()


@pytest.mark.parametrize("num_models", [2, 3, 5])
def test_weights_equal_the_optimum_of_scipy(num_models):
    log_probabilities = drawn(num_models, 400, seed=num_models)
    weights = mixture_weights(log_probabilities)
    assert weights.sum().item() == pytest.approx(1) and weights.min() >= 0
    start, bounds = np.full(num_models, 1 / num_models), [(1e-9, 1)] * num_models
    limits = {"bounds": bounds, "constraints": {"type": "eq", "fun": lambda weights: weights.sum() - 1}}
    accuracy = {"ftol": 1e-14, "maxiter": 1000}
    found = minimize(mean_loss, start, args=(log_probabilities,), method="SLSQP", **limits, options=accuracy)
    assert mean_loss(weights, log_probabilities) == pytest.approx(found.fun, abs=1e-7)
    assert weights.tolist() == pytest.approx(found.x.tolist(), abs=1e-3)


def test_equal_models_keep_equal_weights():
    own = drawn(1, 50)
    assert mixture_weights(own.expand(4, -1)).tolist() == pytest.approx([0.25] * 4)
    mixed = mixed_log_probabilities(own.expand(2, -1), torch.tensor([0.3, 0.7], dtype=torch.float64))
    torch.testing.assert_close(mixed, own[0])


def test_probabilities_are_mixed_not_logarithms():
    log_probabilities = torch.tensor([[0.5, 0.1], [0.1, 0.9]]).log()
    mixed = mixed_log_probabilities(log_probabilities, torch.tensor([0.25, 0.75]))
    assert mixed.tolist() == pytest.approx([math.log(0.2), math.log(0.7)], rel=1e-6)
