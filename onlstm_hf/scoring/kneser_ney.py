"""N-grams with modified Kneser-Ney smoothing (Chen & Goodman 1999): what language models were before networks.

Written here because no library that installs from the Python package index trains them: `kenlm` brings only the part
that reads models, and `nltk.lm` knows one fixed discount.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..utils.iteration import progress_bar

# Discounts of counts 1, 2, and 3 or more where a text is too small to estimate them (KenLM's `--discount_fallback`).
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class _Order(NamedTuple):
    """The n-grams of one length.

    Attributes:
        keys: `[G]`, increasing: of each n-gram its context's number times the size of the vocabulary plus its last
            word.
        discounted: `[G]`, the probability that is left of each n-gram.
        backoff: by the number of the context (an n-gram that is one word shorter) the probability that is left for
            the shorter n-grams; 1 where nothing followed.
    """

    keys: np.ndarray
    discounted: np.ndarray
    backoff: np.ndarray


class KneserNeyNGrams:
    """Modified Kneser-Ney n-grams, interpolated, over sentences that each begin anew.

    The probability of a word w after its context h, the n - 1 words before it or those since the last `<eos>`, that
    `<eos>` included, is

        p(w | h) = max(a(h w) - D(a(h w)), 0) / sum_v a(h v) + b(h) p(w | h without its first word)

    where a is the count of the longest n-grams and of those that begin with `<eos>`, and of all others the number of
    different words that were seen before them; D is one of three discounts an order, for a = 1, 2, and 3 or more,
    estimated from the counts of counts; and b(h) is what makes the sum 1. Below single words is the uniform
    distribution over the vocabulary.

    Args:
        tokens: `[N]` token ids of the training text, each sentence followed by `eos_token_id`.
        vocab_size: number of words, `<eos>` and the unknown word included.
        eos_token_id: the token that ends a sentence.
        order: number of words of the longest n-grams.

    Raises:
        ValueError: if the text is empty, has an id outside the vocabulary, or the order is less than 1.
    """

    def __init__(self, tokens: Sequence[int], vocab_size: int, eos_token_id: int, order: int = 5):
        if order < 1:
            raise ValueError(f"the order must be at least 1, not {order}")
        self.vocab_size, self.eos_token_id, self.order = vocab_size, eos_token_id, order
        words, depths = self._words_and_depths(tokens)
        if len(words) < 2:
            raise ValueError("there is no text to count")

        # For each length: its n-grams, their counts, and whether they begin with <eos>; then the index of the
        # n-gram that ends at each place of the text.
        keys, counts = [np.arange(vocab_size)], [np.bincount(words[1:], minlength=vocab_size)]
        begins, ends = np.zeros(vocab_size, dtype=bool), words
        for length in progress_bar(range(2, order + 1), description="n-grams", unit="length"):
            at = np.flatnonzero(depths >= length - 1)
            found, first, number, count = np.unique(
                ends[at - 1] * vocab_size + words[at], return_index=True, return_inverse=True, return_counts=True
            )
            words_before = np.bincount(ends[at[first]], minlength=len(counts[-1]))
            counts[-1] = np.where(begins, counts[-1], words_before)
            keys.append(found)
            counts.append(count)
            begins = depths[at[first]] == length - 1
            ends = np.full(len(words), -1)
            ends[at] = number
        num_contexts = [1, *map(len, keys)]
        self._orders = [_smoothed(*ngrams, vocab_size) for ngrams in zip(keys, counts, num_contexts, strict=False)]

    @property
    def num_ngrams(self) -> int:
        """N-grams of all lengths that were seen."""
        return sum(len(order.keys) for order in self._orders)

    def log_probabilities(self, tokens: Sequence[int]) -> np.ndarray:
        """Natural log probability `[N]` of every token of a text, given the tokens of its sentence before it.

        Args:
            tokens: `[N]` token ids, each sentence followed by `<eos>`.

        Raises:
            ValueError: if an id is outside the vocabulary.
        """
        words, depths = self._words_and_depths(tokens)
        probability = np.full(len(words), 1 / self.vocab_size)
        context = np.zeros(len(words), dtype=np.int64)  # number of the n-gram before each place, -1 if it is not known
        for length, order in enumerate(self._orders, start=1):
            if not len(order.keys):  # all sentences of the counted text are shorter
                break
            at = np.flatnonzero((depths >= length - 1) & (context >= 0))
            key = context[at] * self.vocab_size + words[at]
            number = np.minimum(np.searchsorted(order.keys, key), len(order.keys) - 1)
            seen = order.keys[number] == key
            probability[at] *= order.backoff[context[at]]
            probability[at[seen]] += order.discounted[number[seen]]
            ends = np.full(len(words), -1)
            ends[at[seen]] = number[seen]
            context = np.concatenate([[-1], ends[:-1]])
        return np.log(probability[1:])

    def _words_and_depths(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens after a first `<eos>`, and of each how many tokens of context its sentence has for it."""
        tokens = np.asarray(tokens, dtype=np.int64)
        if tokens.ndim != 1 or (len(tokens) and not 0 <= tokens.min() <= tokens.max() < self.vocab_size):
            raise ValueError(f"expected a list of token ids below {self.vocab_size}")
        words = np.concatenate([[self.eos_token_id], tokens])
        places = np.arange(len(words))
        starts = np.maximum.accumulate(np.where(words == self.eos_token_id, places, 0))
        depths = places - np.concatenate([[0], starts[:-1]])
        return words, depths


def _smoothed(keys: np.ndarray, counts: np.ndarray, num_contexts: int, vocab_size: int) -> _Order:
    """The discounted probabilities of n-grams of one length, and what they leave to shorter ones."""
    contexts = keys // vocab_size
    totals = np.bincount(contexts, counts, num_contexts)
    discounts = np.array([0.0, *_discounts(counts)])[np.minimum(counts, 3)]
    left = np.bincount(contexts, discounts, num_contexts)
    backoff = np.divide(left, totals, out=np.ones(num_contexts), where=totals > 0)
    return _Order(keys, (counts - discounts) / np.maximum(totals, 1)[contexts], backoff)


def _discounts(counts: np.ndarray) -> tuple[float, float, float]:
    """The discounts of counts 1, 2, and 3 or more (Chen & Goodman 1999, equation 26)."""
    ones, twos, threes, fours = (int((counts == number).sum()) for number in (1, 2, 3, 4))
    if not (ones and twos and threes):
        return FALLBACK_DISCOUNTS
    ratio = ones / (ones + 2 * twos)
    found = 1 - 2 * ratio * twos / ones, 2 - 3 * ratio * threes / twos, 3 - 4 * ratio * fours / threes
    fits = all(0 <= discount <= number for number, discount in enumerate(found, start=1))
    return found if fits else FALLBACK_DISCOUNTS
