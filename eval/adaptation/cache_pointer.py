"""The continuous cache of Grave, Joulin & Usunier (2016): words of the recent past become more probable again."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch


class CachePointer(NamedTuple):
    """Settings of a continuous cache (section 3.1 and equation 3 of the paper).

    The probability of the word `x` after the hidden state `h_t` (what the head of the model reads) is

        (1 - weight) p_model(x | h_t) + weight sum_i [x_(i+1) = x] exp(flatness h_t . h_i) / sum_i exp(flatness h_t . h_i)

    with `i` over the last `size` positions before `t`, and that of the model alone where there are none.

    Attributes:
        size: how many of the last words it holds.
        flatness: theta, which scales the scores of its hidden states: at 0 all words in it count alike.
        weight: lambda, the share of the cache in the probability of a word, at least 0 and less than 1.
    """  # noqa: E501

    size: int
    flatness: float
    weight: float

    def check(self) -> None:
        """Raises a `ValueError` for a setting out of its range."""
        if self.size < 1 or not 0 <= self.flatness < math.inf or not 0 <= self.weight < 1:
            raise ValueError(
                "a cache needs a size of at least 1, a flatness of at least 0 and a weight of at least 0 and less "
                f"than 1, not {self}"
            )


class CacheWindow:
    """The hidden states of the last words, and the words that followed them: as many as the largest cache needs."""

    def __init__(self, caches: Sequence[CachePointer]):
        self.caches = caches
        self.size = max((cache.size for cache in caches), default=1)
        self.hidden_states: torch.Tensor | None = None
        self.words: torch.Tensor | None = None

    def extend(self, hidden_states: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes in a chunk, hidden states `[B, T, H]` and the word after each `[B, T]`, and forgets what is too old.

        Returns:
            Hidden states `[B, M + T, H]` and words `[B, M + T]`: the `M` that were in the window, and the chunk.
        """
        if self.words is not None:
            hidden_states = torch.cat([self.hidden_states, hidden_states], dim=1)
            words = torch.cat([self.words, words], dim=1)
        self.hidden_states, self.words = hidden_states[:, -self.size :].clone(), words[:, -self.size :].clone()
        return hidden_states, words

    def mix(self, from_model: torch.Tensor, hidden_states: torch.Tensor, words: torch.Tensor) -> list[torch.Tensor]:
        """Mixes what the model says of the words of a chunk with what the caches say, and takes the chunk in.

        Args:
            from_model: `[B, T]`, the log probabilities of the words by the model alone.
            hidden_states, words: see `extend`.

        Returns:
            For each of the caches the log probabilities of the words, `[B, T]` in float64.
        """
        hidden_states = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        past = 0 if self.words is None else self.words.shape[1]
        seen, followers = self.extend(hidden_states, words)
        scores, repeated = hidden_states @ seen.transpose(1, 2), words.unsqueeze(2) == followers.unsqueeze(1)
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
        repeated: whether the word after `i` is the one after `t`, likewise.
        past: `M`.
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
