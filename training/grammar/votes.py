"""Trees of other parsers as votes that guide the training of a grammar.

Parse-focusing (Park & Kim, Findings of ACL 2024, "Structural Optimization Ambiguity and Simplicity Bias in
Unsupervised Neural Grammar Induction") sums over the trees proposed by other parsers instead of all trees. Here the
sum includes every tree whose spans all have votes, and each vote for a span multiplies the weight of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from onlstm_hf.trees.rank_files import read_trees_of_text
from onlstm_hf.utils.programs import split_weights

# Score of a span without votes. It excludes the span in sentences with votes, and is constant in those without.
UNVOTED_SCORE = -30.0


class SpanVotes:
    """Votes of parsers for the spans of each sentence.

    Attributes:
        ends: `[S]`, end of each sentence in `spans` `[V, 2]` and `votes` `[V]`, the total weights of the parsers.
    """

    def __init__(self, sentences: Sequence[dict[tuple[int, int], float]]):
        self.ends = np.cumsum([len(spans) for spans in sentences])
        self.spans = np.array([span for spans in sentences for span in spans], dtype=np.int64).reshape(-1, 2)
        self.votes = np.array([votes for spans in sentences for votes in spans.values()], dtype=np.float32)

    @classmethod
    def read(cls, names: Sequence[str], sentences: Sequence[Sequence[str]], branching_bias: str) -> SpanVotes:
        """Reads votes for the words of each sentence from files of trees, FILE or FILE=WEIGHT."""
        votes: list[dict[tuple[int, int], float]] = [{} for _ in sentences]
        for path, weight in files_of_votes(names):
            trees = read_trees_of_text(path, sentences).trees(branching_bias=branching_bias)
            for votes_by_span, tree in zip(votes, trees, strict=True):
                for span in tree.spans():
                    votes_by_span[span] = votes_by_span.get(span, 0.0) + weight
        return cls(votes)

    def scores(self, indices: Sequence[int], num_words: int, strength: float) -> torch.Tensor:
        """Returns the log weights of spans, `[B, n + 1, n + 1]`, in sentences of `num_words` = n words."""
        scores = np.full((len(indices), num_words + 1, num_words + 1), UNVOTED_SCORE, dtype=np.float32)
        for row, index in enumerate(indices):
            first, last = (self.ends[index - 1] if index else 0), self.ends[index]
            starts, ends = self.spans[first:last].T
            scores[row, starts, ends] = strength * self.votes[first:last]
        return torch.from_numpy(scores)

    def lines(self) -> Iterator[str]:
        """Yields the votes as text for a `fingerprint`."""
        for values in (self.ends, self.spans, self.votes):
            yield values.tobytes().decode("latin-1")


def files_of_votes(names: Sequence[str]) -> list[tuple[str, float]]:
    """Returns the existing file and the weight of each parser; see `split_weights`."""
    weighted = split_weights(names)
    for path, _ in weighted:
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file of trees {path} (votes)")
    return weighted
