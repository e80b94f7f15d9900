"""N-gram language models with modified Kneser-Ney smoothing (Chen & Goodman 1999), as a baseline.

No package of the Python package index trains them: `kenlm` contains only the reader of models, and `nltk.lm` has a
single fixed discount.
"""

from collections.abc import Sequence

import numpy as np
import torch

from ..models.state import check_vocabulary
from ..utils.iteration import progress_bar

# Discounts of counts 1, 2, and 3 or more for texts too small to estimate them (KenLM's `--discount_fallback`).
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class KneserNeyNGrams:
    """Interpolated modified Kneser-Ney n-grams. Contexts do not cross sentence boundaries.

    The context h of a word w is the n - 1 words before it, at most back to and including the last `<eos>`. Then

        p(w | h) = max(a(h w) - D(a(h w)), 0) / sum_v a(h v) + b(h) p(w | h without its first word)

    a is the count of the longest n-grams and of those that begin with `<eos>`. For all other n-grams, a is the number
    of different words seen before them. D is one of three discounts per order, for a = 1, 2, and 3 or more, estimated
    from the counts of counts. b(h) makes the sum 1. Unigrams are interpolated with the uniform distribution.

    The `[N]` token ids of the training text have `eos_token_id` after each sentence. `vocab_size` counts it and the
    unknown word. The longest n-grams have `order` words.
    """

    def __init__(self, tokens: Sequence[int], vocab_size: int, eos_token_id: int, order: int = 5):
        self.vocab_size, self.eos_token_id = vocab_size, eos_token_id
        words, depths = self._words_and_depths(tokens)
        if order < 1 or len(words) == 1:
            raise ValueError(
                f"the order must be at least 1, not {order}" if order < 1 else "there is no text to count"
            )
        # `keys` of the n-grams of each length, increasing: the index of the context (all words but the last) times the
        # vocabulary size, plus the last word. `begins`: whether each n-gram begins with <eos>. `ends`: the index of
        # the n-gram that ends at each position.
        keys, counts = [np.arange(vocab_size)], [np.bincount(words[1:], minlength=vocab_size)]
        begins, ends = np.zeros(vocab_size, dtype=bool), words
        for length in progress_bar(range(2, order + 1), description="n-grams", unit="length"):
            at = np.flatnonzero(depths >= length - 1)
            ngrams, first, ngram_indices, count = np.unique(
                ends[at - 1] * vocab_size + words[at], return_index=True, return_inverse=True, return_counts=True
            )
            words_before = np.bincount(ends[at[first]], minlength=len(counts[-1]))
            counts[-1] = np.where(begins, counts[-1], words_before)
            keys.append(ngrams)
            counts.append(count)
            begins = depths[at[first]] == length - 1
            ends = np.full(len(words), -1)
            ends[at] = ngram_indices
        num_contexts = [1, *map(len, keys)]
        self._orders = [_smooth(*counted, vocab_size) for counted in zip(keys, counts, num_contexts, strict=False)]
        self.num_ngrams = sum(map(len, keys))

    def log_probabilities(self, tokens: Sequence[int]) -> np.ndarray:
        """Returns the natural log probability `[N]` of each token, given the previous tokens of its sentence."""
        words, depths = self._words_and_depths(tokens)
        probability = np.full(len(words), 1 / self.vocab_size)
        context = np.zeros(len(words), dtype=np.int64)  # index of the n-gram before each position; -1: unseen
        for length, (keys, discounted, backoff) in enumerate(self._orders, start=1):
            if not len(keys):  # all training sentences are shorter
                break
            at = np.flatnonzero((depths >= length - 1) & (context >= 0))
            key = context[at] * self.vocab_size + words[at]
            index = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            seen = keys[index] == key
            probability[at] *= backoff[context[at]]
            probability[at[seen]] += discounted[index[seen]]
            ends = np.full(len(words), -1)
            ends[at[seen]] = index[seen]
            context = np.concatenate([[-1], ends[:-1]])
        return np.log(probability[1:])

    def _words_and_depths(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens with an `<eos>` before them, and the length of each token's context in its sentence."""
        words = np.concatenate([[self.eos_token_id], np.asarray(tokens, dtype=np.int64)])
        check_vocabulary("tokens", torch.from_numpy(words), self.vocab_size)
        positions = np.arange(len(words))
        starts = np.maximum.accumulate(np.where(words == self.eos_token_id, positions, 0))
        depths = positions - np.concatenate([[0], starts[:-1]])
        return words, depths


def _smooth(
    keys: np.ndarray, counts: np.ndarray, num_contexts: int, vocab_size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the keys and discounted probabilities of n-grams of one length, and what contexts leave to shorter ones.

    A context that no word followed leaves 1.
    """
    contexts = keys // vocab_size
    totals = np.bincount(contexts, counts, num_contexts)
    discounts = np.array([0.0, *_discounts(counts)])[np.minimum(counts, 3)]
    left = np.bincount(contexts, discounts, num_contexts)
    backoff = np.divide(left, totals, out=np.ones(num_contexts), where=totals > 0)
    return keys, (counts - discounts) / np.maximum(totals, 1)[contexts], backoff


def _discounts(counts: np.ndarray) -> tuple[float, float, float]:
    """Estimates the discounts of counts 1, 2, and 3 or more (Chen & Goodman 1999, equation 26)."""
    ones, twos, threes, fours = (int((counts == number).sum()) for number in (1, 2, 3, 4))
    if not (ones and twos and threes):
        return FALLBACK_DISCOUNTS
    ratio = ones / (ones + 2 * twos)
    discounts = 1 - 2 * ratio * twos / ones, 2 - 3 * ratio * threes / twos, 3 - 4 * ratio * fours / threes
    is_valid = all(0 <= discount <= number for number, discount in enumerate(discounts, start=1))
    return discounts if is_valid else FALLBACK_DISCOUNTS
