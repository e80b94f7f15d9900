"""Averaged trees as training targets: the loss of their splits, batches, and held-out score.

Nguyen, Nguyen, Joty & Li (ACL 2021), "A Conditional Splitting Framework for Efficient Constituency Parsing", treat
parsing as a sequence of split decisions. Here the distances decide.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, cycle, islice
from random import Random
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.parsing.sentences import first_of_each_unit
from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.text.word_alignment import encode_words
from onlstm_hf.trees.distances import distances_of_tree
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from training.loop.task import BatchSource, ProcessShard, TrainingBatch

# Shorter sentences have only one tree.
FEWEST_WORDS = 3
# Every 50th sentence is held out of training, to score the model.
HELD_OUT_EVERY = 50
# Name and type of the member of an average that has the right-branching trees.
RIGHT_BRANCHING = "right-branching"


class Split(NamedTuple):
    """Split decision: the word from `start` to `end` (exclusive) with the largest distance splits a constituent.

    It is split as in the tree if this word is in the range of correct words.
    """

    start: int
    end: int
    right_start: int
    right_end: int


def splits_of_tree(distances: Sequence[float], branching_bias: str) -> list[Split]:
    """Returns the split decisions with which `tree_from_distances` builds the tree by a rule.

    Other distances yield the same tree if and only if the word with the largest distance is correct in each decision.
    With the papers' rule `"right"` two words can be correct: a split at the first or the second word of a constituent
    yields `[first, [second, rest]]`.
    """
    splits, unsplit = [], [(0, len(distances))]
    while unsplit:
        start, end = unsplit.pop()
        if end - start < 3:  # two words form one constituent with any distances
            continue
        if branching_bias == "none":
            word = max(range(start + 1, end), key=distances.__getitem__)
            split = Split(start + 1, end, word, word + 1)
            unsplit += (start, word), (word, end)
        else:
            word = max(range(start, end), key=distances.__getitem__)
            if word <= start + 1:  # the first word is separated, then its sister is split
                in_sister = max(range(start + 1, end), key=distances.__getitem__)
                second_is_correct = in_sister <= start + 2  # the sister is split after its first word
                split = Split(start, end, start, start + 1 + second_is_correct)
                unsplit.append((start + 1, end))
            else:
                split = Split(start, end, word, word + 1)
                unsplit += (start, word), (word + 1, end)
        splits.append(split)
    return splits


def splitting_loss(distances: torch.Tensor, splits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns the mean negative log-probability of the correct splits of each sentence, `[B]`; 0 without splits.

    A word splits a constituent with the probability `softmax(distances / temperature)` over its words.

    Args:
        distances: `[B, num_words]`.
        splits: `[num_splits, 5]`, batch row and fields of each split.
    """
    rows, (starts, ends, right_starts, right_ends) = splits[:, 0], splits[:, 1:, None].unbind(1)
    words = torch.arange(distances.shape[1], device=distances.device)
    logits = distances[rows] / temperature
    among_all = logits.masked_fill((words < starts) | (words >= ends), -torch.inf).logsumexp(1)
    among_right = logits.masked_fill((words < right_starts) | (words >= right_ends), -torch.inf).logsumexp(1)
    sums = distances.new_zeros(len(distances)).index_add(0, rows, among_all - among_right)
    return sums / rows.bincount(minlength=len(distances)).clamp(min=1)


class TreeBatch(NamedTuple):
    """Whole sentences with the splits of their target trees.

    Attributes:
        input_ids: `[B, T]`, an `<eos>` before each sentence, as in `parse`.
        attention_mask: `[B, T]`, 0 at padding.
        first_tokens: `[B, num_words]`, position of the first token of each word; 0 at padding.
        splits: `[num_splits, 5]`, batch row and fields of each split of the target trees.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    first_tokens: torch.Tensor
    splits: torch.Tensor


@dataclass(frozen=True)
class TargetTrees:
    """Target trees, given by distances, and the temperature of the splitting loss.

    `stored.model` describes the averaged models, and `stored.branching_bias` is the rule that builds the trees.
    """

    stored: SentenceDistances
    temperature: float

    @classmethod
    def read(cls, path: str | os.PathLike, temperature: float) -> TargetTrees:
        """Reads a file of `training/average_trees.py`, without sentences of fewer than `FEWEST_WORDS` words."""
        stored = read_tree_file(path)
        if "averaged" not in stored.model or stored.branching_bias is None:
            raise ValueError(f"{path} has the distances of one model, not averaged trees of training/average_trees.py")
        target_trees = cls(stored, temperature)._chosen([len(words) >= FEWEST_WORDS for words in stored.sentences])
        if len(target_trees.stored.sentences) < 2:
            raise ValueError(f"{path} has too few sentences of {FEWEST_WORDS} words or more")
        return target_trees

    def _chosen(self, is_chosen: Sequence[bool]) -> TargetTrees:
        sentences = list(compress(self.stored.sentences, is_chosen))
        by_layer = {None: list(compress(self.stored.by_layer[None], is_chosen))}
        return replace(self, stored=replace(self.stored, sentences=sentences, by_layer=by_layer))

    def split(self) -> tuple[TargetTrees, TargetTrees]:
        """Splits the trees into training and held-out ones (the first and every 50th after it)."""
        is_held_out = [index % HELD_OUT_EVERY == 0 for index in range(len(self.stored.sentences))]
        return self._chosen([not held_out for held_out in is_held_out]), self._chosen(is_held_out)

    def lines(self) -> Iterator[str]:
        """Yields the trees as text for a `fingerprint`."""
        yield self.stored.branching_bias
        for words, distances in zip(self.stored.sentences, self.stored.by_layer[None], strict=True):
            yield f"{' '.join(words)} {distances}"

    @property
    def rules(self) -> tuple[str, ...]:
        """Returns the rules to train with: the trees' own rule, and `"none"`, which can yield every binary tree."""
        return tuple(dict.fromkeys((self.stored.branching_bias, "none")))

    def splits(self) -> list[list[Split]]:
        """Returns the split decisions of each tree for all rules together."""
        own_rule, *other_rules = self.rules
        splits = [splits_of_tree(distances, own_rule) for distances in self.stored.by_layer[None]]
        for rule in other_rules:
            for splits_of_sentence, tree in zip(splits, self.stored.trees(branching_bias=own_rule), strict=True):
                splits_of_sentence += splits_of_tree(distances_of_tree(tree, rule), rule)
        return splits

    def loss(self, model: PreTrainedModel, batch: TreeBatch) -> torch.Tensor:
        """Returns the splitting loss without dropout. Layers above the parsing layer are not run."""
        batch = TreeBatch(*(part.to(model.device) for part in batch))
        with evaluation_mode(model, gradients=True):
            distances, _ = model.syntactic_distances(batch.input_ids, attention_mask=batch.attention_mask)
        return splitting_loss(distances.float().gather(1, batch.first_tokens), batch.splits, self.temperature).mean()

    def score(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """Returns splitting loss and sentence F1 (in per cent, mean of the rules) of the model on these trees."""
        words = [list(words) for words in self.stored.sentences]
        predicted = [distances for _, (distances,) in model.sentence_distances(words, tokenizer, progress=False)]
        losses = []
        for distances, splits in zip(predicted, self.splits(), strict=True):
            splits = torch.tensor([(0, *split) for split in splits]).view(-1, 5)
            losses.append(splitting_loss(torch.tensor([distances]), splits, self.temperature).item())
        induced = replace(self.stored, by_layer={None: predicted})
        target = self.stored.trees(branching_bias=self.stored.branching_bias)
        f1 = [tree_agreement([induced.trees(branching_bias=rule), target])[0, 1] for rule in self.rules]
        return {"held_out_tree_loss": sum(losses) / len(losses), "held_out_tree_f1": 100 * float(sum(f1) / len(f1))}

    def describe(self) -> dict[str, Any]:
        """Returns the description of the target trees for results and cards."""
        members = self.stored.model["averaged"]
        averaged = [member for member in members if member["model_type"] != RIGHT_BRANCHING]
        weights_of_models, weights = (sum(member["weight"] for member in group) for group in (averaged, members))
        model_types = {member["model"]: member["model_type"] for member in averaged}
        return {
            "num_models": len(model_types),
            "model_types": dict(Counter(model_types.values())),
            "num_averaged": len(averaged),
            "right_branching_share": 1 - weights_of_models / weights,
            "num_sentences": len(self.stored.sentences),
            "held_out_every": HELD_OUT_EVERY,
            "branching_bias": self.stored.branching_bias,
            "ties": self.stored.model.get("ties"),
            "command": self.stored.model["command"],
        }


class WithTargetTrees:
    """Batches of text, each with a batch of target trees in its field `trees`.

    A tree batch has sentences of similar length. Each epoch of the text shuffles the tree batches again, and repeats
    them if the text has more batches. The seed and the epoch determine the order. `shard` has the rows of this process
    in a tree batch.
    """

    def __init__(
        self,
        text: BatchSource,
        target_trees: TargetTrees,
        tokenizer: PreTrainedTokenizerBase,
        shard: ProcessShard,
        seed: int,
    ):
        self.text, self.shard, self.seed, self.eos_token_id = text, shard, seed, tokenizer.eos_token_id
        self.sentences = [encode_words(tokenizer, words) for words in target_trees.stored.sentences]
        self.splits = target_trees.splits()
        if (number := len(self.sentences)) < shard.num_rows:
            raise ValueError(f"{number} target trees are too few for {shard.num_rows} rows: lower tree_batch_size")

    def num_batches(self, epoch: int) -> int | None:
        return self.text.num_batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[TrainingBatch]:
        generator, size = Random(f"{self.seed} {epoch} trees"), self.shard.num_rows
        order = [*range(len(self.sentences))]
        generator.shuffle(order)
        order = sorted(order[: len(order) // size * size], key=lambda index: len(self.sentences[index][0]))
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        generator.shuffle(groups)
        for batch, group in zip(self.text.batches(epoch, start), islice(cycle(groups), start, None), strict=False):
            yield batch._replace(trees=self._batch(group[self.shard.rows]))

    def _batch(self, indices: Sequence[int]) -> TreeBatch:
        rows, first_tokens, splits = [], [], []
        for row, index in enumerate(indices):
            input_ids, word_of_token = self.sentences[index]
            rows.append(torch.tensor([self.eos_token_id, *input_ids]))
            positions = range(1, len(rows[-1]))
            first_tokens.append(torch.tensor(first_of_each_unit(positions, word_of_token)))
            splits += [(row, *split) for split in self.splits[index]]
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        input_ids, first_tokens = (pad_sequence(parts, batch_first=True) for parts in (rows, first_tokens))
        return TreeBatch(input_ids, mask, first_tokens, torch.tensor(splits).view(-1, 5))
