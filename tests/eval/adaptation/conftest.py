import math

import pytest
import torch

from tests.helpers.tiny_models import KINDS, VOCAB_SIZE


@pytest.fixture(params=KINDS)
def model(request):
    return KINDS[request.param].make(eos_token_id=request.module.EOS).double()


@pytest.fixture
def stream(request):
    return torch.randint(VOCAB_SIZE, (request.module.LENGTH,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def with_cache():
    """Computes the definition of a cache by a loop over all past pairs of hidden state and next word."""

    def with_cache(steps, cache):
        """Takes the hidden state, the word after it and its probability by the model, for each position of a row."""
        log_probabilities = []
        for position, (hidden, word, probability) in enumerate(steps):
            recent = steps[max(0, position - cache.size) : position]
            if recent:
                scores = [math.exp(cache.flatness * (hidden @ past).item()) for past, *_ in recent]
                matching = sum(score for score, (_, after, _) in zip(scores, recent, strict=True) if after == word)
                probability = (1 - cache.weight) * probability + cache.weight * matching / sum(scores)
            log_probabilities.append(math.log(probability))
        return log_probabilities

    return with_cache
