"""Batches of whole sentences with target trees, one for each batch of text."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from onlstm_hf.parsing.sentences import first_of_each_unit
from onlstm_hf.text.word_alignment import encode_words
from training.distillation.splitting_loss import Split
from training.loop.task import BatchSource, ProcessShard, TrainingBatch


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


class WithTargetTrees:
    """Batches of text, each with a batch of target trees.

    A tree batch has sentences of similar length. Each epoch of the text shuffles the tree batches again, and
    repeats them if the text has more batches.

    Args:
        text: batches of text, whose field `trees` is filled.
        sentences: words of each sentence.
        splits: splits of the target tree of each sentence.
        shard: this process's rows of a tree batch.
        seed: determines the order together with the epoch.

    Raises:
        ValueError: if there are fewer sentences than rows.
    """

    def __init__(
        self,
        text: BatchSource,
        sentences: Sequence[Sequence[str]],
        splits: Sequence[Sequence[Split]],
        tokenizer: PreTrainedTokenizerBase,
        shard: ProcessShard,
        seed: int,
    ):
        self.text, self.shard, self.seed, self.eos_token_id = text, shard, seed, tokenizer.eos_token_id
        self.sentences, self.splits = [encode_words(tokenizer, words) for words in sentences], splits
        if len(self.sentences) < shard.num_rows:
            raise ValueError(
                f"there are target trees of {len(self.sentences)} sentences to train on, too few for {shard.num_rows} "
                "in an update: lower tree_batch_size"
            )

    def num_batches(self, epoch: int) -> int | None:
        return self.text.num_batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[TrainingBatch]:
        for batch, trees in zip(self.text.batches(epoch, start), self._tree_batches(epoch, start), strict=False):
            yield batch._replace(trees=trees)

    def _tree_batches(self, epoch: int, start: int) -> Iterator[TreeBatch]:
        generator, size = Random(f"{self.seed} {epoch} trees"), self.shard.num_rows
        order = [*range(len(self.sentences))]
        generator.shuffle(order)
        order = sorted(order[: len(order) // size * size], key=lambda index: len(self.sentences[index][0]))
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        generator.shuffle(groups)
        for group in islice(cycle(groups), start, None):
            yield self._batch(group[self.shard.rows])

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
