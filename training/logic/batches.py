"""Pairs of formulas as the batches of an epoch, of similar length, so that little of a batch is padding."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from onlstm_hf import build_word_tokenizer, generate_logic_pairs
from onlstm_hf.logic.formulas import MAX_OPERATORS, OPERATORS, RELATIONS, VARIABLES, LogicPair, split_by_operators
from onlstm_hf.logic.pairs import SPLITS, read_logic_dataset, read_logic_files
from onlstm_hf.utils.dataset_errors import reported_dataset_errors
from training.logic.recipe import LogicDataArguments
from training.loop.task import Share

# Pairs are sorted by length within windows of so many batches, which keeps their order random enough.
BATCHES_PER_WINDOW = 50


class EncodedPair(NamedTuple):
    """Token ids of both sides and the number of the relation in `RELATIONS`."""

    left: torch.Tensor
    right: torch.Tensor
    label: int

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the longer and of the shorter side."""
        lengths = len(self.left), len(self.right)
        return max(lengths), min(lengths)


class LogicBatch(NamedTuple):
    """The pairs of one batch that are this process's; the other fields are those of a `TrainingBatch`."""

    pairs: list[EncodedPair]
    num_items: float
    lr_scale: float = 1.0


class LogicSplits(NamedTuple):
    """Training and validation pairs, and test pairs by number of operators."""

    train: list[LogicPair]
    validation: list[LogicPair]
    test: dict[int, list[LogicPair]]


def build_logic_tokenizer() -> PreTrainedTokenizerBase:
    """Brackets, operators and variables, in this order; for pairs, so that pipelines can classify text."""
    return build_word_tokenizer(vocabulary=["(", ")", *OPERATORS, *VARIABLES], token_type_ids=True)


def load_logic_splits(arguments: LogicDataArguments) -> LogicSplits:
    """The pairs of a recipe, read or generated.

    Raises:
        ValueError: if they cannot be read, or leave nothing to train on.
    """
    source = arguments.pairs
    if source is None:
        splits = split_by_operators(generate_logic_pairs(arguments.num_pairs, arguments.pairs_seed))
    elif any(Path(source, name).is_file() for name in SPLITS):
        splits = read_logic_files(source)
    else:
        splits = read_logic_dataset(_load_dataset(source))
    known = chain.from_iterable(
        splits[f"train{number}"] for number in range(min(arguments.max_train_operators, MAX_OPERATORS) + 1)
    )
    train, validation = [], []
    for number, pair in enumerate(known, start=1):
        (train if number % arguments.holdout_every else validation).append(pair)
    if not train or not validation:
        raise ValueError(
            f"there are {len(train)} training and {len(validation)} validation pairs of at most "
            f"{arguments.max_train_operators} operators: both are needed"
        )
    test = {number: splits[f"test{number}"] for number in range(MAX_OPERATORS + 1)}
    return LogicSplits(train, validation, {number: pairs for number, pairs in test.items() if pairs})


def _load_dataset(source: str):
    import datasets

    with reported_dataset_errors(source, f"the pairs {source}"):
        if Path(source, "dataset_dict.json").is_file():
            return datasets.load_from_disk(source)
        return datasets.load_dataset(source)


def encode_pairs(pairs: Sequence[LogicPair], tokenizer: PreTrainedTokenizerBase) -> list[EncodedPair]:
    """The token ids of pairs. A word-level vocabulary is all there is to the tokenizer, and looking it up is fast.

    Raises:
        ValueError: if a formula has a token that is not in the vocabulary.
    """
    vocabulary = tokenizer.get_vocab()
    try:
        return [
            EncodedPair(
                torch.tensor([vocabulary[token] for token in pair.left.split()]),
                torch.tensor([vocabulary[token] for token in pair.right.split()]),
                RELATIONS.index(pair.relation),
            )
            for pair in pairs
        ]
    except KeyError as error:
        raise ValueError(f"the pairs have the token {error}, which is no bracket, operator or variable") from error


def collate(pairs: Sequence[EncodedPair]) -> dict[str, torch.Tensor]:
    """The arguments of a classifier of pairs, padded on the right."""
    inputs = {"labels": torch.tensor([pair.label for pair in pairs])}
    for suffix, rows in (("", [pair.left for pair in pairs]), ("_pair", [pair.right for pair in pairs])):
        inputs[f"input_ids{suffix}"] = pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        inputs[f"attention_mask{suffix}"] = (torch.arange(int(lengths.max())) < lengths.unsqueeze(1)).long()
    return inputs


class LogicBatches:
    """The training batches of one process. All processes together see every pair once an epoch.

    Args:
        pairs: all training pairs.
        share: the rows of a batch that are this process's.
        seed: with the number of the epoch it decides the order.
    """

    def __init__(self, pairs: list[EncodedPair], share: Share, seed: int):
        self.pairs, self.share, self.seed = pairs, share, seed

    def num_batches(self, epoch: int) -> int:
        """Batches of an epoch; a last one that does not give every process a pair is left out."""
        whole, rest = divmod(len(self.pairs), self.share.num_rows)
        return whole + (rest >= self.share.num_processes)

    def batches(self, epoch: int, start: int = 0) -> Iterator[LogicBatch]:
        """The batches of an epoch from number `start` on."""
        generator = Random(f"{self.seed}-{epoch}")
        order = generator.sample(range(len(self.pairs)), len(self.pairs))
        num_rows, share = self.share.num_rows, self.share
        window = BATCHES_PER_WINDOW * num_rows
        starts = range(0, len(order), num_rows)
        order = list(
            chain.from_iterable(
                sorted(order[first : first + window], key=lambda index: self.pairs[index].lengths)
                for first in range(0, len(order), window)
            )
        )
        batches = [order[first : first + num_rows] for first in generator.sample(starts, len(starts))]
        batches = [rows for rows in batches if len(rows) >= share.num_processes]
        for rows in batches[start:]:
            own = rows[share.process_index :: share.num_processes]
            yield LogicBatch([self.pairs[index] for index in own], len(rows) / share.num_processes)
