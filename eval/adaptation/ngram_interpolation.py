"""A language model beside the n-grams of its training text, their probabilities mixed."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from onlstm_hf.scoring.kneser_ney import KneserNeyNGrams
from onlstm_hf.scoring.stream import stream_chunks, target_log_probabilities
from onlstm_hf.utils.evaluation_mode import evaluation_mode


class NGramInterpolation(NamedTuple):
    """Settings of the mixture.

    Attributes:
        order: words of the longest n-grams.
        weight: the share of the n-grams in the probability of a word, from 0 to 1.
    """

    order: int
    weight: float

    def check(self) -> None:
        """Raises a `ValueError` for a setting out of its range."""
        if self.order < 1 or not 0 <= self.weight <= 1:
            raise ValueError(f"n-grams need an order of at least 1 and a weight from 0 to 1, not {self}")


def count_ngrams(
    model: PreTrainedModel, training_ids: torch.Tensor | Sequence[int], mixtures: Sequence[NGramInterpolation]
) -> dict[int, KneserNeyNGrams]:
    """The n-grams of a text, for each order among the settings.

    Args:
        model: whose vocabulary the text is encoded with.
        training_ids: token ids, each sentence followed by `<eos>`.
        mixtures: the settings.

    Raises:
        ValueError: as `KneserNeyNGrams`.
    """
    vocab_size, eos_token_id = model.config.vocab_size, model.config.eos_token_id
    orders = {mixture.order for mixture in mixtures}
    return {order: KneserNeyNGrams(training_ids, vocab_size, eos_token_id, order) for order in orders}


def interpolated_log_probabilities(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    ngrams: Mapping[int, KneserNeyNGrams],
    mixtures: Sequence[NGramInterpolation],
    batch_size: int = 1,
    chunk_length: int = 256,
) -> list[torch.Tensor]:
    """Scores a text as one stream, as `stream_log_likelihood` does, with modified Kneser-Ney n-grams beside the model.

    The probability of a word is `(1 - weight) p_model + weight p_ngrams`. The model reads on over the ends of
    sentences; the n-grams begin anew after each. Model and n-grams run once for all weights.

    Args:
        model: a language model of this package.
        input_ids: `[N]` token ids, each sentence followed by `<eos>`.
        ngrams: those of the training text, by their order (`count_ngrams`).
        mixtures: the settings to score the text with.
        batch_size: rows that the text is cut into for the model, each from an empty state.
        chunk_length: tokens of a row in one call of the model. It does not change the result.

    Returns:
        For each of the settings the natural log probabilities of the tokens, `[N]` in float64.

    Raises:
        ValueError: as `stream_log_likelihood`, and for settings out of their range.
    """
    for mixture in mixtures:
        mixture.check()
    chunks, state = [], None
    with evaluation_mode(model):
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length):
            output = model(inputs, state=state, use_cache=True)
            state = output.state
            chunks.append(target_log_probabilities(output.logits, targets).cpu())
    from_model = torch.cat(chunks, dim=1).flatten()[: len(input_ids)]
    from_ngrams = {
        order: torch.from_numpy(ngrams[order].log_probabilities(input_ids))
        for order in {mixture.order for mixture in mixtures}
    }
    return [_mix(from_model, from_ngrams[mixture.order], mixture.weight) for mixture in mixtures]


def _mix(from_model: torch.Tensor, from_ngrams: torch.Tensor, weight: float) -> torch.Tensor:
    if weight in (0, 1):
        return from_ngrams if weight else from_model
    return torch.logaddexp(math.log1p(-weight) + from_model, math.log(weight) + from_ngrams)
