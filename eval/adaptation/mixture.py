"""Mixture of language models, with the weights that maximise the likelihood of a tuning text."""

import torch

# EM stops if a step raises the mean log likelihood of a token by less than this, in nats.
MIN_GAIN = 1e-10
MAX_STEPS = 10_000


def mixture_weights(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Returns the weights `[M]` of models, which sum to 1, that maximise the likelihood of tokens, `[M, N]`.

    Expectation maximisation (Jelinek & Mercer 1980): a model's new weight is the mean of its posterior probabilities
    over the tokens. The log likelihood is concave in the weights and grows with every step.
    """
    weights = torch.full((len(log_probabilities),), 1 / len(log_probabilities), dtype=torch.float64)
    previous = -torch.inf
    for _ in range(MAX_STEPS):
        joint = log_probabilities.double() + weights.log().unsqueeze(1)
        mixed = joint.logsumexp(0)
        if mixed.mean() - previous < MIN_GAIN:
            break
        previous = mixed.mean()
        weights = (joint - mixed).exp().mean(1)
    return weights


def mixed_log_probabilities(log_probabilities: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mixes the log probabilities `[M, N]` of tokens into those of the mixture, `[N]`."""
    return (log_probabilities.double() + weights.log().unsqueeze(1)).logsumexp(0)
