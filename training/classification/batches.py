"""Batches of labelled sequences or pairs of similar length."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from training.loop.task import ProcessShard

# Examples are sorted by length within windows of this many batches, which keeps the order random enough.
BATCHES_PER_WINDOW = 50
# Suffixes of the model's arguments for the first and the second sequence of an example.
SUFFIXES = ("", "_pair")


class Example(NamedTuple):
    """Token ids of one or two sequences, and the index of the label."""

    sequences: tuple[torch.Tensor, ...]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """Returns the number of tokens of each sequence, longest first."""
        return tuple(sorted(map(len, self.sequences), reverse=True))


class ExampleBatch(NamedTuple):
    """This process's examples of a batch, with the fields of a `TrainingBatch`."""

    examples: list[Example]
    num_items: float
    lr_scale: float = 1.0


def encode_examples(
    texts: Iterable[tuple[Sequence[str], int]], tokenizer: PreTrainedTokenizerBase, kinds: str
) -> list[Example]:
    """Encodes labelled texts. A vocabulary lookup is faster than the tokenizer.

    A `ValueError` names a token out of vocabulary; it calls valid tokens `kinds`.
    """
    vocabulary = tokenizer.get_vocab()
    try:
        return [
            Example(tuple(torch.tensor([vocabulary[token] for token in text.split()]) for text in sequences), label)
            for sequences, label in texts
        ]
    except KeyError as error:
        raise ValueError(f"the data have the token {error}, which is no {kinds}") from error


def collate(examples: Sequence[Example], device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
    """Returns the arguments of a classifier of sequences or pairs, padded on the right."""
    inputs = {"labels": torch.tensor([example.label for example in examples])}
    for suffix, rows in zip(SUFFIXES, zip(*(example.sequences for example in examples), strict=True), strict=False):
        inputs[f"input_ids{suffix}"] = pad_sequence(rows, batch_first=True)
        inputs[f"attention_mask{suffix}"] = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def rows_by_length(examples: Sequence[Example], batch_size: int) -> list[list[int]]:
    """Returns the indices of all examples in batches of similar length."""
    order = sorted(range(len(examples)), key=lambda index: examples[index].lengths)
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


class ExampleBatches:
    """Training batches of one process. All processes together see every example once per epoch."""

    def __init__(self, examples: list[Example], shard: ProcessShard, seed: int):
        self.examples, self.shard, self.seed = examples, shard, seed

    def num_batches(self, epoch: int) -> int:
        """Returns the number of batches. A last one with fewer examples than processes is dropped."""
        whole, rest = divmod(len(self.examples), self.shard.num_rows)
        return whole + (rest >= self.shard.num_processes)

    def batches(self, epoch: int, start: int = 0) -> Iterator[ExampleBatch]:
        generator = Random(f"{self.seed}-{epoch}")
        shuffled = generator.sample(range(len(self.examples)), len(self.examples))
        num_rows, shard = self.shard.num_rows, self.shard
        window = BATCHES_PER_WINDOW * num_rows
        order = []
        for first in range(0, len(shuffled), window):
            order += sorted(shuffled[first : first + window], key=lambda index: self.examples[index].lengths)
        starts = range(0, len(order), num_rows)
        batches = [order[first : first + num_rows] for first in generator.sample(starts, len(starts))]
        batches = [rows for rows in batches if len(rows) >= shard.num_processes]
        for rows in batches[start:]:
            indices = rows[shard.process_index :: shard.num_processes]
            yield ExampleBatch([self.examples[index] for index in indices], len(rows) / shard.num_processes)
