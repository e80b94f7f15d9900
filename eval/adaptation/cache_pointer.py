"""Continuous cache of Grave, Joulin & Usunier (2016), which raises the probability of recent words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch


class CachePointer(NamedTuple):
    """Settings of a continuous cache (section 3.1 and equation 3 of the paper).

    The probability of the word `x` after the hidden state `h_t` (the input of the model's head) is

        (1 - weight) p_model(x | h_t) + weight sum_i [x_(i+1) = x] exp(flatness h_t . h_i) / sum_i exp(flatness h_t . h_i)

    where `i` runs over the last `size` positions before `t`. Without such positions it is `p_model` alone.

    Attributes:
        size: number of words in the cache.
        flatness: theta, which scales the scores of the hidden states; with 0 all words in the cache count alike.
        weight: lambda, the share of the cache in the probability of a word, at least 0 and less than 1.
    """  # noqa: E501

    size: int
    flatness: float
    weight: float

    def check(self) -> None:
        """Raises a `ValueError` for a setting out of range."""
        if self.size < 1 or not 0 <= self.flatness < math.inf or not 0 <= self.weight < 1:
            raise ValueError(
                "a cache needs a size of at least 1, a flatness of at least 0 and a weight of at least 0 and less "
                f"than 1, not {self}"
            )


class CacheWindow:
    """Sliding window of hidden states and the words after them, as long as the largest cache."""

    def __init__(self, caches: Sequence[CachePointer]):
        self.caches = caches
        self.size = max((cache.size for cache in caches), default=1)
        self.hidden_states: torch.Tensor | None = None
        self.words: torch.Tensor | None = None

    def extend(self, hidden_states: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds a chunk, hidden states `[B, T, H]` and the word after each `[B, T]`, and drops the oldest entries.

        Returns:
            Hidden states `[B, M + T, H]` and words `[B, M + T]`: the `M` former entries of the window and the chunk.
        """
        if self.words is not None:
            hidden_states = torch.cat([self.hidden_states, hidden_states], dim=1)
            words = torch.cat([self.words, words], dim=1)
        self.hidden_states, self.words = hidden_states[:, -self.size :].clone(), words[:, -self.size :].clone()
        return hidden_states, words

    def mix(self, from_model: torch.Tensor, hidden_states: torch.Tensor, words: torch.Tensor) -> list[torch.Tensor]:
        """Interpolates the model's log probabilities of a chunk with those of each cache, and adds the chunk.

        Args:
            from_model: log probabilities of the words by the model alone, `[B, T]`.
            hidden_states, words: see `extend`.

        Returns:
            Log probabilities of the words for each cache, `[B, T]` in float64.
        """
        hidden_states = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        past = 0 if self.words is None else self.words.shape[1]
        window_states, followers = self.extend(hidden_states, words)
        scores, repeated = hidden_states @ window_states.transpose(1, 2), words.unsqueeze(2) == followers.unsqueeze(1)
        from_cache = {
            setting: _cache_log_probabilities(scores, repeated, past, *setting)
            for setting in {(cache.size, cache.flatness) for cache in self.caches}
        }
        return [
            _interpolate(from_model, from_cache[cache.size, cache.flatness], cache.weight) for cache in self.caches
        ]


def _cache_log_probabilities(
    scores: torch.Tensor, repeated: torch.Tensor, past: int, size: int, flatness: float
) -> torch.Tensor:
    """Returns the log probability of each word by the cache, `[B, T]` in float64; NaN where the cache is empty.

    Args:
        scores: `h_t . h_i`, `[B, T, M + T]`.
        repeated: whether the word after `i` equals the word after `t`, `[B, T, M + T]`.
        past: number of former entries `M`.
        size, flatness: see `CachePointer`.
    """
    length, num_columns = scores.shape[1:]
    age = past + torch.arange(length, device=scores.device).unsqueeze(1) - torch.arange(num_columns).to(scores.device)
    logits = (flatness * scores).masked_fill((age < 1) | (age > size), -math.inf)
    normalizer = logits.logsumexp(dim=-1)
    return (logits.masked_fill(~repeated, -math.inf).logsumexp(dim=-1) - normalizer).double()


def _interpolate(from_model: torch.Tensor, from_cache: torch.Tensor, weight: float) -> torch.Tensor:
    if weight == 0:
        return from_model
    both = torch.logaddexp(math.log1p(-weight) + from_model, math.log(weight) + from_cache)
    return both.where(~from_cache.isnan(), from_model)
