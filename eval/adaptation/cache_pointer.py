"""Continuous cache of Grave, Joulin & Usunier (2016), which raises the probability of recent words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch


class CachePointer(NamedTuple):
    """Settings of a continuous cache (section 3.1 and equation 3 of the paper).

    The probability of the word `x` after the hidden state `h_t` (the input of the model's head) is

        (1 - weight) p_model(x | h_t) + weight sum_i [x_(i+1) = x] s_i / sum_i s_i,    s_i = exp(flatness h_t . h_i)

    where `i` runs over the last `size` positions before `t`. Without such positions it is `p_model` alone.
    """

    size: int  # number of words in the cache
    flatness: float  # theta, at least 0; with 0 all words in the cache count alike
    weight: float  # lambda, from 0 to 1


class CacheWindow:
    """Sliding window of hidden states and the words after them, as long as the largest cache."""

    def __init__(self, caches: Sequence[CachePointer]):
        self.caches = caches
        self.size = max(cache.size for cache in caches)
        self.hidden_states: torch.Tensor | None = None
        self.words: torch.Tensor | None = None

    def mix(self, from_model: torch.Tensor, hidden_states: torch.Tensor, words: torch.Tensor) -> list[torch.Tensor]:
        """Interpolates the model's log probabilities of a chunk with those of each cache, and adds the chunk.

        Args:
            from_model: log probabilities of the words by the model alone, `[B, T]`.
            hidden_states: `[B, T, H]`.
            words: the word after each hidden state, `[B, T]`.

        Returns:
            Log probabilities of the words for each cache, `[B, T]` in float64.
        """
        hidden_states = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        window_states, followers = hidden_states, words
        if self.words is not None:
            window_states = torch.cat([self.hidden_states, hidden_states], dim=1)
            followers = torch.cat([self.words, words], dim=1)
        self.hidden_states, self.words = window_states[:, -self.size :].clone(), followers[:, -self.size :].clone()
        scores, repeated = hidden_states @ window_states.transpose(1, 2), words.unsqueeze(2) == followers.unsqueeze(1)
        from_cache = {
            setting: _cache_log_probabilities(scores, repeated, *setting)
            for setting in {(cache.size, cache.flatness) for cache in self.caches}
        }
        return [
            _interpolate(from_model, from_cache[cache.size, cache.flatness], cache.weight) for cache in self.caches
        ]


def _cache_log_probabilities(scores: torch.Tensor, repeated: torch.Tensor, size: int, flatness: float) -> torch.Tensor:
    """Returns the log probability of each word by the cache, `[B, T]` in float64; NaN where the cache is empty.

    Args:
        scores: `h_t . h_i` for the `M` former positions of the window and those of the chunk, `[B, T, M + T]`.
        repeated: whether the word after `i` equals the word after `t`, `[B, T, M + T]`.
        size, flatness: see `CachePointer`.
    """
    length, num_columns = scores.shape[1:]
    position = torch.arange(num_columns, device=scores.device)
    age = position[num_columns - length :, None] - position
    logits = (flatness * scores).masked_fill((age < 1) | (age > size), -math.inf)
    normalizer = logits.logsumexp(dim=-1)
    return (logits.masked_fill(~repeated, -math.inf).logsumexp(dim=-1) - normalizer).double()


def _interpolate(from_model: torch.Tensor, from_cache: torch.Tensor, weight: float) -> torch.Tensor:
    share = torch.tensor(weight, dtype=torch.float64)
    both = torch.logaddexp((1 - share).log() + from_model, share.log() + from_cache)
    return both.where(~from_cache.isnan(), from_model)
