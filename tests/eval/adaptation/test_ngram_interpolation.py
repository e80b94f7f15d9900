import math

import pytest
import torch

from eval.adaptation.ngram_interpolation import NGramInterpolation, count_ngrams, interpolated_log_probabilities
from onlstm_hf.scoring.kneser_ney import KneserNeyNGrams
from tests.helpers.tiny_models import VOCAB_SIZE

EOS, LENGTH = 4, 37
MIXTURES = [NGramInterpolation(order, weight) for order in (1, 3) for weight in (0.0, 0.2, 1.0)]


@torch.no_grad()
def test_probabilities_are_the_mixture_of_both(model, stream):
    training = torch.randint(VOCAB_SIZE, (200,), generator=torch.Generator().manual_seed(2))
    found = interpolated_log_probabilities(
        model, stream, count_ngrams(model, training, MIXTURES), MIXTURES, chunk_length=5
    )
    inputs = torch.cat([torch.tensor([EOS]), stream[:-1]])
    from_model = model(inputs[None]).logits[0].softmax(-1)[range(LENGTH), stream]
    for mixture, log_probabilities in zip(MIXTURES, found, strict=True):
        ngrams = KneserNeyNGrams(training, VOCAB_SIZE, EOS, mixture.order)
        from_ngrams = torch.from_numpy(ngrams.log_probabilities(stream)).exp()
        expected = (1 - mixture.weight) * from_model + mixture.weight * from_ngrams
        assert log_probabilities.exp().tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_settings_out_of_range_are_refused(stream):
    for mixture in (NGramInterpolation(0, 0.1), NGramInterpolation(3, -0.1), NGramInterpolation(3, math.nan)):
        with pytest.raises(ValueError, match="an order of at least 1 and a weight from 0 to 1"):
            interpolated_log_probabilities(None, stream, {}, [mixture])
