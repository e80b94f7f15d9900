"""Batches of labelled sequences, or of pairs, of similar length, so that there is little padding."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from training.loop.task import ProcessShard

# Batches in a window within which examples are sorted by length; the order stays random enough.
BATCHES_PER_WINDOW = 50
# Suffixes of the model's arguments for each sequence of an example.
SUFFIXES = ("", "_pair")


class Example(NamedTuple):
    """The token ids of one sequence or two, and the number of their label."""

    sequences: tuple[torch.Tensor, ...]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence, the longest first."""
        return tuple(sorted(map(len, self.sequences), reverse=True))


class ExampleBatch(NamedTuple):
    """The examples of one batch for this process, with the fields of a `TrainingBatch`."""

    examples: list[Example]
    num_items: float
    lr_scale: float = 1.0


def encode_examples(
    texts: Iterable[tuple[Sequence[str], int]], tokenizer: PreTrainedTokenizerBase, kinds: str
) -> list[Example]:
    """The token ids of texts, each with the number of its label. Looking up words is faster than the tokenizer.

    Raises:
        ValueError: if a token is not in the vocabulary; the message says which `kinds` of tokens there are.
    """
    vocabulary = tokenizer.get_vocab()
    try:
        return [
            Example(tuple(torch.tensor([vocabulary[token] for token in text.split()]) for text in sequences), label)
            for sequences, label in texts
        ]
    except KeyError as error:
        raise ValueError(f"the data have the token {error}, which is no {kinds}") from error


def collate(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """The arguments of a classifier of sequences or of pairs, padded on the right."""
    inputs = {"labels": torch.tensor([example.label for example in examples])}
    for suffix, rows in zip(SUFFIXES, zip(*(example.sequences for example in examples), strict=True), strict=False):
        inputs[f"input_ids{suffix}"] = pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        inputs[f"attention_mask{suffix}"] = (torch.arange(int(lengths.max())) < lengths.unsqueeze(1)).long()
    return inputs


class ExampleBatches:
    """The training batches of one process. All processes together see every example once an epoch.

    Args:
        examples: all that there are to train on.
        shard: the rows of a batch that are this process's.
        seed: with the number of the epoch it decides the order.
    """

    def __init__(self, examples: list[Example], shard: ProcessShard, seed: int):
        self.examples, self.shard, self.seed = examples, shard, seed

    def num_batches(self, epoch: int) -> int:
        """Batches of an epoch; a last one that does not give every process an example is left out."""
        whole, rest = divmod(len(self.examples), self.shard.num_rows)
        return whole + (rest >= self.shard.num_processes)

    def batches(self, epoch: int, start: int = 0) -> Iterator[ExampleBatch]:
        """The batches of an epoch from number `start` on."""
        generator = Random(f"{self.seed}-{epoch}")
        drawn = generator.sample(range(len(self.examples)), len(self.examples))
        num_rows, shard = self.shard.num_rows, self.shard
        window = BATCHES_PER_WINDOW * num_rows
        order = []
        for first in range(0, len(drawn), window):
            order += sorted(drawn[first : first + window], key=lambda index: self.examples[index].lengths)
        starts = range(0, len(order), num_rows)
        batches = [order[first : first + num_rows] for first in generator.sample(starts, len(starts))]
        batches = [rows for rows in batches if len(rows) >= shard.num_processes]
        for rows in batches[start:]:
            own = rows[shard.process_index :: shard.num_processes]
            yield ExampleBatch([self.examples[index] for index in own], len(rows) / shard.num_processes)
