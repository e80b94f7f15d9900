"""Trees of other parsers as votes, to which a grammar listens while it is trained.

Parse-focusing (Park & Kim, Findings of ACL 2024, "Structural Optimization Ambiguity and Simplicity Bias in
Unsupervised Neural Grammar Induction") sums over the trees that other parsers propose instead of all trees. Here the
sum runs over all trees whose spans have votes, and each vote for a span multiplies the weight of a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from onlstm_hf.trees.rank_files import read_trees_of_text
from onlstm_hf.utils.programs import split_weights

# The score of a span without votes. It excludes the span where others have votes, and nothing where none has.
UNVOTED_SCORE = -30.0


class SpanVotes:
    """The votes of parsers for the spans of sentences, from the sum of their weights by span of each sentence.

    Attributes:
        ends: `[S]`, the number of spans with votes up to the end of each sentence.
        spans: `[V, 2]`, the start and end of each.
        votes: `[V]`, the sum of the weights of the parsers whose trees have it.
    """

    def __init__(self, sentences: Sequence[dict[tuple[int, int], float]]):
        self.ends = np.cumsum([len(spans) for spans in sentences])
        self.spans = np.array([span for spans in sentences for span in spans], dtype=np.int64).reshape(-1, 2)
        self.votes = np.array([votes for spans in sentences for votes in spans.values()], dtype=np.float32)

    @classmethod
    def read(cls, names: Sequence[str], sentences: Sequence[Sequence[str]], branching_bias: str) -> SpanVotes:
        """The votes of files of trees.

        Args:
            names: FILE, or FILE=WEIGHT for a parser that counts as so many.
            sentences: the words of each sentence of the text.
            branching_bias: the rule that makes trees of distances.

        Raises:
            FileNotFoundError, ValueError: if a file cannot be read, or is of another text.
        """
        votes: list[dict[tuple[int, int], float]] = [{} for _ in sentences]
        for path, weight in files_of_votes(names):
            trees = read_trees_of_text(path, sentences).trees(branching_bias=branching_bias)
            for own, tree in zip(votes, trees, strict=True):
                for span in tree.spans():
                    own[span] = own.get(span, 0.0) + weight
        return cls(votes)

    def scores(self, indices: Sequence[int], num_words: int, strength: float) -> torch.Tensor:
        """Gains of a tree's log weight by its spans, `[B, n + 1, n + 1]`, in sentences of `num_words` = n words."""
        scores = np.full((len(indices), num_words + 1, num_words + 1), UNVOTED_SCORE, dtype=np.float32)
        for row, index in enumerate(indices):
            first, last = (self.ends[index - 1] if index else 0), self.ends[index]
            starts, ends = self.spans[first:last].T
            scores[row, starts, ends] = strength * self.votes[first:last]
        return torch.from_numpy(scores)

    def lines(self) -> Iterator[str]:
        """Yields the votes as texts, for a `fingerprint`."""
        for values in (self.ends, self.spans, self.votes):
            yield values.tobytes().decode("latin-1")


def files_of_votes(names: Sequence[str]) -> list[tuple[str, float]]:
    """The file, which must be there, and the weight of each parser: see `split_weights`."""
    weighted = split_weights(names)
    for path, _ in weighted:
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file of trees {path} (votes)")
    return weighted
