"""Unigram and bigram models of scripts."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from eval.narrative_cloze.event_files import Script


class CountModel:
    """Predicts events of the training scripts by counts of single events or of pairs.

    The unigram model scores an event b by its frequency P(b). The all-bigram model of Pichotta & Mooney (2016)
    sums log P(b | a) over all events a before the held-out event. C(a, b) counts how often b is among the `window`
    events after a. The bigrams are smoothed with the unigrams, because the data are few:

        P(b | a) = (C(a, b) + prior * P(b)) / (C(a) + prior),    and P(b) for an unseen a

    The `window` of unigrams is 0. Ties are in the order of first occurrence.
    """

    def __init__(self, scripts: Sequence[Script], window: int = 0, prior: float = 1.0):
        counts = Counter(event for script in scripts for event in script)
        self.window, self.prior = window, prior
        self.events = list(counts)
        self.ids = {event: number for number, event in enumerate(self.events)}
        self.frequencies = np.array(list(counts.values())) / counts.total()
        self.followers: dict[int, Counter[int]] = defaultdict(Counter)
        for script in scripts:
            ids = [self.ids[event] for event in script]
            for place, first in enumerate(ids):
                self.followers[first].update(ids[place + 1 : place + 1 + window])

    def log_conditionals(self, event: tuple[str, ...]) -> np.ndarray:
        """Returns the natural logarithms of P(b | event) for all events b."""
        counts = self.followers.get(self.ids.get(event), Counter())
        probabilities = self.prior * self.frequencies
        probabilities[list(counts)] += list(counts.values())
        return np.log(probabilities / (counts.total() + self.prior))

    def predict(self, script: Script, count: int) -> Iterator[Script]:
        """Yields the `count` most probable events, the best first, for each event after the first."""
        scores = np.zeros(len(self.events))
        for event in script[:-1]:
            scores = scores + self.log_conditionals(event) if self.window else self.frequencies
            best = np.argsort(-scores, kind="stable")[:count]
            yield [self.events[index] for index in best]
