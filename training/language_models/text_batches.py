"""From text to training batches: one stream cut into rows, independent sentences, or text read as it comes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from onlstm_hf.utils.dataset_errors import reported_dataset_errors
from onlstm_hf.utils.files import read_text_file
from training.language_models.recipe import DataArguments
from training.loop.task import Share

LINES_PER_CALL = 4096


class Batch(NamedTuple):
    """One step's input for one process.

    Attributes:
        input_ids: `[B, T]`.
        shift_labels: `[B, T]`, the token that follows each position; -100 at padding.
        attention_mask: `[B, T]`, or `None` where there is no padding.
        continues: whether the rows go on where the previous batch's rows stopped.
        lr_scale: factor of the learning rate (shorter chunks make smaller steps).
        num_items: predicted tokens of all processes' rows divided by the number of processes. The summed loss is
            divided by it, so that the mean over processes is the mean over tokens.
    """

    input_ids: torch.Tensor
    shift_labels: torch.Tensor
    attention_mask: torch.Tensor | None
    continues: bool
    lr_scale: float
    num_items: float


def check_files(arguments: DataArguments) -> None:
    """Raises a `FileNotFoundError` if a text file or the gold trees are missing: before any of them is read."""
    for name in ("train_files", "validation_files", "test_files"):
        for path in getattr(arguments, name) or []:
            if not Path(path).is_file():
                raise FileNotFoundError(f"there is no text file {path} ({name})")
    if arguments.gold_trees is not None and not Path(arguments.gold_trees).exists():
        raise FileNotFoundError(f"there is no treebank {arguments.gold_trees} (gold_trees)")


def load_texts(arguments: DataArguments, part: str) -> Iterable | None:
    """The texts of `"train"`, `"validation"` or `"test"`, `None` where the recipe names none.

    Raises:
        FileNotFoundError: if a text file or the folder of the dataset is missing.
        ValueError: if the dataset cannot be loaded, or has no such column.
    """
    if arguments.dataset is not None:
        return load_dataset_column(arguments, part, arguments.text_column, arguments.streaming and part == "train")
    files = getattr(arguments, f"{part}_files")
    return None if files is None else TextLines(files)


def load_dataset_column(arguments: DataArguments, part: str, column: str, streaming: bool = False) -> Iterable | None:
    """One column of a split of the HF dataset, `None` where the recipe names no such split."""
    split = getattr(arguments, f"{part}_split")
    if split is None:
        return None
    from datasets import load_dataset

    with reported_dataset_errors(arguments.dataset, f"the split {split!r} of the dataset {arguments.dataset}"):
        dataset = load_dataset(arguments.dataset, arguments.dataset_config, split=split, streaming=streaming)
    if dataset.column_names is not None and column not in dataset.column_names:
        raise ValueError(
            f"{arguments.dataset} has no column {column!r}; its columns: {', '.join(dataset.column_names)}"
        )
    return dataset if streaming else dataset.select_columns(column)


class TextLines:
    """The lines of UTF-8 text files, read anew by every iteration.

    `datasets.load_dataset("text", streaming=True)` would end a line at a carriage return, too, and not say which line
    of which file is not UTF-8.
    """

    def __init__(self, files: list[str]):
        self.files = files

    def __iter__(self) -> Iterator[str]:
        for path in self.files:
            yield from read_text_file(path)


def encode_lines(texts: Iterable, tokenizer: PreTrainedTokenizerBase, text_column: str) -> Iterator[list[int]]:
    """Token ids of every non-empty line, `<eos>` at its end.

    Args:
        texts: strings, or rows of a dataset whose `text_column` is read.
        tokenizer: must have an `eos_token`.
        text_column: name of that column.

    Raises:
        ValueError: if a row has no text.
    """
    lines = (text_of(item, text_column) for item in texts)
    while some_lines := list(islice(lines, LINES_PER_CALL)):
        encoded = tokenizer(some_lines, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for ids in encoded["input_ids"]:
            if ids:
                yield [*ids, tokenizer.eos_token_id]


def text_of(item: str | dict, text_column: str) -> str:
    """A string as it is; of a row of a dataset the text in its column."""
    text = item if isinstance(item, str) else item.get(text_column)
    if not isinstance(text, str):
        raise ValueError(f"a row of the dataset has no text in the column {text_column!r}: {str(item)[:200]}")
    return text


def encode_text(texts: Iterable, tokenizer: PreTrainedTokenizerBase, text_column: str, name: str) -> torch.Tensor:
    """All lines one after the other as one tensor `[N]` of token ids.

    Raises:
        ValueError: if there is no text; `name` says which it is.
    """
    pieces = [torch.tensor(ids, dtype=torch.int32) for ids in encode_lines(texts, tokenizer, text_column)]
    if not pieces:
        raise ValueError(f"the {name} text is empty")
    return torch.cat(pieces).long()


def pad_sentences(
    sentences: Sequence[Sequence[int]], eos_token_id: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sentences on their own as rows, an `<eos>` before each one's first token.

    Returns:
        `input_ids`, `shift_labels` (-100 at padding) and `attention_mask`, each `[B, T]`.
    """
    rows = [torch.tensor([eos_token_id, *ids]) for ids in sentences]
    length = max(map(len, rows))
    padded = torch.stack([F.pad(row, (0, length - len(row)), value=-100) for row in rows])
    labels = padded[:, 1:]
    return padded[:, :-1].clamp(min=0), labels, (labels != -100).long()


def draw_chunk_lengths(generator: Random, bptt_length: int, random_bptt: bool) -> Iterator[int]:
    """Lengths of the chunks: around `bptt_length` (95 %) or half of it (5 %), deviation 5, at least 5.

    From Merity et al. (2018), section 5. Without `random_bptt` all have `bptt_length`.
    """
    while True:
        mean = bptt_length if generator.random() < 0.95 else bptt_length / 2
        yield max(5, int(generator.gauss(mean, 5))) if random_bptt else bptt_length


class StreamBatches:
    """One text as `num_rows` rows of equal length, read side by side, chunk by chunk.

    The first row starts after an `<eos>`, every other one after the token before it; the few tokens that do not fill
    all rows are left out, as in the papers' code.
    """

    def __init__(
        self, stream: torch.Tensor, eos_token_id: int, share: Share, bptt_length: int, random_bptt: bool, seed: int
    ):
        length = len(stream) // share.num_rows
        if length == 0:
            raise ValueError(f"the training text has {len(stream)} tokens, too few for {share.num_rows} rows")
        inputs = torch.cat([stream.new_tensor([eos_token_id]), stream[:-1]])
        self.inputs, self.targets = (
            tokens[: length * share.num_rows].view(share.num_rows, length)[share.rows] for tokens in (inputs, stream)
        )
        self.bptt_length, self.random_bptt, self.seed = bptt_length, random_bptt, seed

    def chunks(self, epoch: int) -> list[tuple[int, int]]:
        """Start and end of every chunk of an epoch."""
        lengths = draw_chunk_lengths(Random(f"{self.seed} {epoch}"), self.bptt_length, self.random_bptt)
        total = self.inputs.shape[1]
        chunks, start = [], 0
        while start < total:
            end = min(total, start + next(lengths))
            chunks.append((start, end))
            start = end
        return chunks

    def num_batches(self, epoch: int) -> int:
        return len(self.chunks(epoch))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for first, end in self.chunks(epoch)[start:]:
            inputs, targets = self.inputs[:, first:end], self.targets[:, first:end]
            scale = (end - first) / self.bptt_length if self.random_bptt else 1.0
            yield Batch(inputs, targets, None, first > 0, scale, targets.numel())


class StreamedTextBatches:
    """Text that is read as it comes: each document goes to the row that has the fewest tokens waiting.

    The rows are laid out otherwise than those of `StreamBatches`, and the tokens of the end that do not fill all rows
    of a chunk are left out.
    """

    def __init__(
        self,
        texts: Iterable,
        tokenizer: PreTrainedTokenizerBase,
        text_column: str,
        share: Share,
        bptt_length: int,
        random_bptt: bool,
        seed: int,
    ):
        self.texts, self.tokenizer, self.text_column, self.share = texts, tokenizer, text_column, share
        self.bptt_length, self.random_bptt, self.seed = bptt_length, random_bptt, seed

    def num_batches(self, epoch: int) -> None:
        return None

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        lengths = draw_chunk_lengths(Random(f"{self.seed} {epoch}"), self.bptt_length, self.random_bptt)
        waiting = [[self.tokenizer.eos_token_id] for _ in range(self.share.num_rows)]
        number, length = 0, next(lengths)
        for ids in encode_lines(self.texts, self.tokenizer, self.text_column):
            min(waiting, key=len).extend(ids)
            while min(map(len, waiting)) > length:
                if number >= start:
                    rows = torch.tensor([row[: length + 1] for row in waiting[self.share.rows]])
                    scale = length / self.bptt_length if self.random_bptt else 1.0
                    yield Batch(rows[:, :-1], rows[:, 1:], None, number > 0, scale, rows[:, 1:].numel())
                for row in waiting:
                    del row[:length]
                number, length = number + 1, next(lengths)
        if number == 0:
            raise ValueError(f"the training text is too short for a batch of {self.share.num_rows} rows")


class SentenceBatches:
    """Sentences on their own, each between two `<eos>`, in batches of similar length, which are shuffled.

    The sentences that do not fill a batch are left out, others in every epoch.
    """

    def __init__(self, sentences: list[list[int]], eos_token_id: int, share: Share, max_length: int, seed: int):
        self.sentences = [ids[:max_length] for ids in sentences]
        self.eos_token_id, self.share, self.seed = eos_token_id, share, seed
        if len(self.sentences) < share.num_rows:
            raise ValueError(
                f"the training text has {len(self.sentences)} sentences, too few for a batch of {share.num_rows}"
            )

    def num_batches(self, epoch: int) -> int:
        return len(self.sentences) // self.share.num_rows

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        generator, size = Random(f"{self.seed} {epoch}"), self.share.num_rows
        order = list(range(len(self.sentences)))
        generator.shuffle(order)
        order = order[: self.num_batches(epoch) * size]
        order.sort(key=lambda index: len(self.sentences[index]))
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        generator.shuffle(groups)
        for group in groups[start:]:
            inputs, targets, mask = pad_sentences([self.sentences[index] for index in group], self.eos_token_id)
            num_items = int(mask.sum()) / self.share.num_processes
            rows = self.share.rows
            yield Batch(inputs[rows], targets[rows], mask[rows], False, 1.0, num_items)
