"""Kneser-Ney n-grams against a direct implementation of the equations with dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm_hf.scoring.kneser_ney import FALLBACK_DISCOUNTS, KneserNeyNGrams

EOS = 0


def stream(sentences):
    return [token for sentence in sentences for token in [*sentence, EOS]]


class ByDefinition:
    """The equations of Chen & Goodman, one n-gram at a time."""

    def __init__(self, sentences, vocab_size, order):
        self.vocab_size, self.order = vocab_size, order
        padded = [(EOS, *sentence, EOS) for sentence in sentences]
        raw = {
            n: Counter(words[end - n : end] for words in padded for end in range(max(n, 2), len(words) + 1))
            for n in range(1, order + 1)
        }
        self.counts = {order: raw[order]}
        for n in range(1, order):
            before = Counter(ngram[1:] for ngram in raw[n + 1])
            starts = {ngram: count for ngram, count in raw[n].items() if n > 1 and ngram[0] == EOS}
            self.counts[n] = {ngram: starts.get(ngram, before[ngram]) for ngram in raw[n]}

    def discount(self, n, count):
        number = Counter(self.counts[n].values())
        if not (number[1] and number[2] and number[3]):
            discounts = FALLBACK_DISCOUNTS
        else:
            y = number[1] / (number[1] + 2 * number[2])
            discounts = tuple(k - (k + 1) * y * number[k + 1] / number[k] for k in (1, 2, 3))
            if not all(0 <= value <= k for k, value in enumerate(discounts, start=1)):
                discounts = FALLBACK_DISCOUNTS
        return discounts[min(count, 3) - 1]

    def probability(self, word, context):
        if len(context) == 0:
            shorter, n = 1 / self.vocab_size, 1
        else:
            shorter, n = self.probability(word, context[1:]), len(context) + 1
        followers = {g[-1]: count for g, count in self.counts[n].items() if g[:-1] == context and count}
        if not followers:
            return shorter
        total = sum(followers.values())
        left = sum(self.discount(n, count) for count in followers.values())
        count = followers.get(word, 0)
        return (max(count - self.discount(n, count), 0) if count else 0) / total + left / total * shorter

    def log_probabilities(self, sentences):
        values = []
        for sentence in sentences:
            words = (EOS, *sentence, EOS)
            for end in range(1, len(words)):
                context = words[max(0, end - self.order + 1) : end]
                values.append(math.log(self.probability(words[end], context)))
        return values


VOCAB_SIZE = 5
texts = st.lists(st.lists(st.integers(1, VOCAB_SIZE - 1), max_size=6), min_size=1, max_size=12)


@settings(max_examples=60)
@given(texts, texts, st.integers(1, 4))
def test_probabilities_equal_those_of_the_equations(training, test, order):
    ngrams = KneserNeyNGrams(stream(training), VOCAB_SIZE, EOS, order)
    expected = ByDefinition(training, VOCAB_SIZE, order).log_probabilities(test)
    assert ngrams.log_probabilities(stream(test)) == pytest.approx(expected, abs=1e-12)


def test_a_text_may_end_without_eos():
    ngrams = KneserNeyNGrams([1], VOCAB_SIZE, EOS, 3)
    found = ngrams.log_probabilities([1, 1, 2, EOS])
    assert np.isfinite(found).all() and found[0] > found[1]


@pytest.mark.parametrize("text, order", [([], 2), ([1, EOS], 0), ([VOCAB_SIZE, EOS], 2), ([-1, EOS], 2)])
def test_bad_input_is_refused(text, order):
    with pytest.raises(ValueError, match="order must be at least 1, not 0|no text to count|outside the vocabulary"):
        KneserNeyNGrams(text, VOCAB_SIZE, EOS, order)


def test_perplexity_of_the_penn_treebank_is_the_published_one(shared_dir):
    ids = {"<eos>": EOS}
    texts = {}
    for name in ("train", "test"):
        lines = (shared_dir / f"data/ptb/{name}.txt").read_text(encoding="utf-8").splitlines()
        texts[name] = stream([ids.setdefault(word, len(ids)) for word in line.split()] for line in lines)
    ngrams = KneserNeyNGrams(texts["train"], len(ids), EOS, 5)
    # 141.2 in Mikolov et al. 2011, with SRILM
    assert math.exp(-ngrams.log_probabilities(texts["test"]).mean()) == pytest.approx(141.2, abs=0.1)
