"""Sentences as token ids, votes of other parsers, batches of sentences of one length, and trees of a grammar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from onlstm_hf.parsing.sentences import first_of_each_unit
from onlstm_hf.text.word_alignment import encode_sentence
from onlstm_hf.trees.averaging import best_trees
from onlstm_hf.trees.distances import distances_of_tree
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.rank_files import read_trees_of_text
from onlstm_hf.trees.tree_files import SentenceDistances
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import split_weights
from training.grammar.model import NeuralGrammar
from training.loop.task import ProcessShard

# Rule of the distances that represent trees in files. It can yield every binary tree.
STORED_RULE = "none"
# Score of a span without votes. It excludes the span in sentences with votes, and is constant in those without.
UNVOTED_SCORE = -30.0


class EncodedSentences(NamedTuple):
    """Words of sentences, and the token id of each word."""

    words: list[tuple[str, ...]]
    ids: list[list[int]]

    @classmethod
    def from_lines(cls, lines: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> EncodedSentences:
        """Encodes one sentence per line, without blank lines.

        A word that contains a special token (`<unk>-based`) gets the id of its first token.
        """
        encoded = [encode_sentence(tokenizer, line)[:3] for line in lines if line.strip()]
        sentences = [tuple(words) for words, _, _ in encoded]
        return cls(sentences, [first_of_each_unit(ids, word_of_token) for _, ids, word_of_token in encoded])


class SpanVotes:
    """Votes of parsers for the spans of each sentence.

    Parse-focusing (Park & Kim, Findings of ACL 2024, "Structural Optimization Ambiguity and Simplicity Bias in
    Unsupervised Neural Grammar Induction") sums over the trees proposed by other parsers instead of all trees. Here
    the sum includes every tree whose spans all have votes, and each vote for a span multiplies the weight of the tree.

    Attributes:
        ends: `[S]`, end of each sentence in `spans` `[V, 2]` and `votes` `[V]`, the total weights of the parsers.
    """

    def __init__(self, sentences: Sequence[dict[tuple[int, int], float]], strength: float):
        self.strength = strength
        self.ends = np.cumsum([len(spans) for spans in sentences])
        self.spans = np.array([span for spans in sentences for span in spans], dtype=np.int64).reshape(-1, 2)
        self.votes = np.array([votes for spans in sentences for votes in spans.values()], dtype=np.float32)

    @classmethod
    def read(cls, names: Sequence[str], sentences: Sequence[Sequence[str]], rule: str, strength: float) -> SpanVotes:
        """Reads votes for the words of each sentence from files of trees, FILE or FILE=WEIGHT."""
        votes: list[dict[tuple[int, int], float]] = [{} for _ in sentences]
        for path, weight in split_weights(names):
            trees = read_trees_of_text(path, sentences).trees(branching_bias=rule)
            for votes_by_span, tree in zip(votes, trees, strict=True):
                for span in tree.spans():
                    votes_by_span[span] = votes_by_span.get(span, 0.0) + weight
        return cls(votes, strength)

    def scores(self, indices: Sequence[int], num_words: int) -> torch.Tensor:
        """Returns the log weights of spans, `[B, n + 1, n + 1]`, in sentences of `num_words` = n words."""
        scores = np.full((len(indices), num_words + 1, num_words + 1), UNVOTED_SCORE, dtype=np.float32)
        for row, index in enumerate(indices):
            first, last = (self.ends[index - 1] if index else 0), self.ends[index]
            starts, ends = self.spans[first:last].T
            scores[row, starts, ends] = self.strength * self.votes[first:last]
        return torch.from_numpy(scores)

    def lines(self) -> Iterator[str]:
        """Yields the votes as text for a `fingerprint`."""
        for values in (self.ends, self.spans, self.votes):
            yield values.tobytes().decode("latin-1")


def groups_of_one_length(indices: Iterable[int], ids: Sequence[Sequence[int]], num_words: int) -> list[list[int]]:
    """Groups sentences of one length, with at most `num_words` words per group (or a single longer sentence)."""
    by_length: dict[int, list[int]] = {}
    for index in indices:
        by_length.setdefault(len(ids[index]), []).append(index)
    groups = []
    for length, members in by_length.items():
        size = max(1, num_words // max(1, length))
        groups += [members[first : first + size] for first in range(0, len(members), size)]
    return groups


class GrammarBatch(NamedTuple):
    """Sentences of one length, `[B, n]`, and the span scores of their votes, `[B, n + 1, n + 1]`."""

    input_ids: torch.Tensor
    span_scores: torch.Tensor | None
    num_items: float
    lr_scale: float = 1.0


class GrammarBatches:
    """Training batches of one process: the sentences with the `indices`, shuffled in every epoch.

    Batches with fewer sentences than processes are dropped.
    """

    def __init__(
        self,
        ids: Sequence[Sequence[int]],
        indices: Sequence[int],
        votes: SpanVotes | None,
        shard: ProcessShard,
        seed: int,
    ):
        self.ids, self.indices, self.votes, self.shard, self.seed = ids, indices, votes, shard, seed
        if not self._groups(0):
            raise ValueError("there is no sentence of a length between min_length and max_length to train on")

    def num_batches(self, epoch: int) -> int:
        return len(self._groups(epoch))

    def batches(self, epoch: int, start: int = 0) -> Iterator[GrammarBatch]:
        shard = self.shard
        for group in self._groups(epoch)[start:]:
            indices = group[shard.process_index :: shard.num_processes]
            yield self.batch(indices, len(self.ids[group[0]]) * len(group) / shard.num_processes)

    def batch(self, indices: Sequence[int], num_items: float) -> GrammarBatch:
        input_ids = torch.tensor([self.ids[index] for index in indices])
        scores = None if self.votes is None else self.votes.scores(indices, input_ids.shape[1])
        return GrammarBatch(input_ids, scores, num_items)

    def _groups(self, epoch: int) -> list[list[int]]:
        generator = Random(f"{self.seed} {epoch}")
        order = generator.sample(self.indices, len(self.indices))
        groups = groups_of_one_length(order, self.ids, self.shard.num_rows)
        groups = [group for group in groups if len(group) >= self.shard.num_processes]
        generator.shuffle(groups)
        return groups


def parse_sentences(
    model: NeuralGrammar, sentences: EncodedSentences, batch_size: int, progress: bool | None = False
) -> list[InducedTree]:
    """Returns the binary tree of each sentence whose spans have the largest sum of probabilities.

    It maximises the expected number of correct spans (Goodman 1996). `batch_size` counts words.
    """
    trees = [InducedTree.from_spans(words, ()) for words in sentences.words]
    longer = [index for index, ids in enumerate(sentences.ids) if len(ids) > 2]
    groups = groups_of_one_length(longer, sentences.ids, batch_size)
    for group in progress_bar(groups, description="parsing", unit="batch", shown=progress):
        input_ids = torch.tensor([sentences.ids[index] for index in group], device=model.device)
        marginals = model.span_marginals(input_ids).double().cpu().numpy()
        best = best_trees(marginals, [sentences.words[index] for index in group], ties="right")
        for index, tree in zip(group, best, strict=True):
            trees[index] = tree
    return trees


def stored_trees(trees: list[InducedTree], **description: Any) -> SentenceDistances:
    """Returns binary trees with a description of the model, for tree files and rank files."""
    distances = [distances_of_tree(tree, STORED_RULE) for tree in trees]
    return SentenceDistances([tree.words for tree in trees], {None: distances}, None, description, STORED_RULE)
