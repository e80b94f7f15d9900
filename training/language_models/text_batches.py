"""Training batches from text: one stream cut into rows, independent sentences, or streamed text."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from accelerate import PartialState
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from onlstm_hf.utils.dataset_errors import reported_dataset_errors
from onlstm_hf.utils.files import read_text_file
from onlstm_hf.utils.iteration import bounded_windows
from training.distillation.target_trees import TreeBatch
from training.language_models.recipe import DATA_FILES, DataArguments, LanguageModelRecipe, TextArguments
from training.loop.task import BatchSource, ProcessShard

# Limits of one tokenizer call, whose result takes memory.
LINES_PER_CALL, CHARACTERS_PER_CALL = 4096, 2**20


class Batch(NamedTuple):
    """Batch of one process, with the fields of a `TrainingBatch`.

    Attributes:
        input_ids: `[B, T]`.
        shift_labels: `[B, T]`, the token after each position; -100 at padding.
        attention_mask: `[B, T]`, or `None` without padding.
        continues: whether the rows continue those of the previous batch.
        trees: target trees for the same update.
    """

    input_ids: torch.Tensor
    shift_labels: torch.Tensor
    attention_mask: torch.Tensor | None
    continues: bool
    lr_scale: float
    num_items: float
    trees: TreeBatch | None = None


def check_files(arguments: TextArguments) -> None:
    """Raises a `FileNotFoundError` if a text file or a file of trees is missing."""
    for name in DATA_FILES:
        paths = getattr(arguments, name, None) or []
        for path in [paths] if isinstance(paths, str) else paths:
            if not Path(path).exists():
                raise FileNotFoundError(f"there is no file {path} ({name})")


def load_texts(arguments: DataArguments, part: str) -> Iterable | None:
    """Returns the texts of `"train"`, `"validation"` or `"test"`, `None` if the recipe names none."""
    if arguments.dataset is not None:
        return load_dataset_column(arguments, part, arguments.text_column, arguments.streaming and part == "train")
    files = getattr(arguments, f"{part}_files")
    return None if files is None else TextLines(files)


def load_dataset_column(arguments: DataArguments, part: str, column: str, streaming: bool = False) -> Iterable | None:
    """Returns a column of a split of the HF dataset, `None` if the recipe names no such split."""
    split = getattr(arguments, f"{part}_split")
    if split is None:
        return None
    from datasets import load_dataset

    with reported_dataset_errors(arguments.dataset, f"the split {split!r} of the dataset {arguments.dataset}"):
        dataset = load_dataset(arguments.dataset, arguments.dataset_config, split=split, streaming=streaming)
    return dataset if streaming else dataset.select_columns(column)


class TextLines:
    """Lines of UTF-8 text files, read again by every iteration.

    Unlike `datasets.load_dataset("text", streaming=True)`, it does not end lines at a carriage return, and errors name
    file and line that are not UTF-8.
    """

    def __init__(self, files: list[str], shard: ProcessShard | None = None):
        self.files, self.shard = files, shard

    def __iter__(self) -> Iterator[str]:
        lines = chain.from_iterable(map(read_text_file, self.files))
        return lines if self.shard is None else islice(lines, self.shard.process_index, None, self.shard.num_processes)


def own_texts(texts: Iterable, shard: ProcessShard) -> Iterable:
    """Returns the texts of this process.

    If the files of a streamed dataset divide evenly among the processes, each process reads its own files. Otherwise
    each process reads all texts, and keeps every n-th.
    """
    if shard.num_processes == 1:
        return texts
    if isinstance(texts, TextLines):
        return TextLines(texts.files, shard)
    from datasets.distributed import split_dataset_by_node

    return split_dataset_by_node(texts, rank=shard.process_index, world_size=shard.num_processes)


def encode_lines(texts: Iterable, tokenizer: PreTrainedTokenizerBase, text_column: str) -> Iterator[list[int]]:
    """Yields the token ids of every non-empty line, with `<eos>` at the end; see `text_of`."""
    lines = (text_of(item, text_column) for item in texts)
    for window in bounded_windows(lines, LINES_PER_CALL, len, CHARACTERS_PER_CALL):
        encoded = tokenizer(window, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for ids in encoded["input_ids"]:
            if ids:
                yield [*ids, tokenizer.eos_token_id]


def text_of(item: str | dict, text_column: str) -> str:
    """Returns a string unchanged, or the text of a dataset row, with a `ValueError` if the row has none."""
    text = item if isinstance(item, str) else item.get(text_column)
    if not isinstance(text, str):
        raise ValueError(f"a row of the dataset has no text in the column {text_column!r}: {str(item)[:200]}")
    return text


def encode_text(texts: Iterable, tokenizer: PreTrainedTokenizerBase, text_column: str, name: str) -> torch.Tensor:
    """Returns the token ids of all lines as one tensor `[N]`, with a `ValueError` if the `name` text is empty."""
    ids = array("q", chain.from_iterable(encode_lines(texts, tokenizer, text_column)))
    if not ids:
        raise ValueError(f"the {name} text is empty")
    return torch.frombuffer(ids, dtype=torch.int64)


class EncodedText(NamedTuple):
    """Token ids `[N]` (int32) of all sentences, and the end of each sentence in them `[S]` (int64)."""

    ids: torch.Tensor
    ends: torch.Tensor


def store_encoded(sentences: Iterable[list[int]], folder: Path) -> EncodedText:
    """Writes a text to files, once per host, and maps them into the memory of each process.

    The files are unlinked at once. The system frees them when the last process ends. Only the first process of a host
    reads the sentences. Hosts may share the folder, which needs four bytes per token and eight per sentence.
    """
    state = PartialState()
    first_of_host = state.process_index - state.local_process_index
    ids, ends = (folder / f".{name}_{first_of_host}" for name in ("tokens", "sentence_ends"))
    try:
        if state.is_local_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            end = 0
            with open(ids, "wb") as id_file, open(ends, "wb") as end_file:
                for sentence in sentences:
                    end += len(sentence)
                    id_file.write(array("i", sentence))
                    end_file.write(array("q", [end]))
        state.wait_for_everyone()
        if not ids.stat().st_size:
            raise ValueError("the training text is empty")
        parts = {ids: torch.int32, ends: torch.int64}
        sizes = {path: path.stat().st_size // dtype.itemsize for path, dtype in parts.items()}
        text = EncodedText(*(torch.from_file(str(path), size=sizes[path], dtype=parts[path]) for path in parts))
        state.wait_for_everyone()
    finally:
        if state.is_local_main_process:
            for path in (ids, ends):
                with suppress(OSError):  # Windows cannot unlink an open file; the next run overwrites it
                    path.unlink(missing_ok=True)
    return text


def pad_sentences(
    sentences: Sequence[Sequence[int]], eos_token_id: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pads sentences to a batch, with an `<eos>` before each first token.

    Returns `input_ids`, `shift_labels` (-100 at padding) and `attention_mask`, each `[B, T]`.
    """
    rows = [torch.tensor([eos_token_id, *ids]) for ids in sentences]
    padded = pad_sequence(rows, batch_first=True, padding_value=-100)
    labels = padded[:, 1:]
    return padded[:, :-1].clamp(min=0), labels, (labels != -100).long()


@dataclass(frozen=True)
class ChunkLengths:
    """Chunk lengths: normal around `bptt_length` (95 %) or half of it (5 %), deviation 5, at least 5.

    From Merity et al. (2018), section 5. Without `random_bptt` every length is `bptt_length`.
    """

    bptt_length: int
    random_bptt: bool
    seed: int

    def draw(self, epoch: int) -> Iterator[int]:
        """Yields the lengths of an epoch without end."""
        generator = Random(f"{self.seed} {epoch}")
        while True:
            mean = self.bptt_length if generator.random() < 0.95 else self.bptt_length / 2
            yield max(5, int(generator.gauss(mean, 5))) if self.random_bptt else self.bptt_length

    def lr_scale(self, length: int) -> float:
        return length / self.bptt_length if self.random_bptt else 1.0


class StreamBatches:
    """One text cut into `num_rows` rows of equal length, read in parallel, chunk by chunk.

    The input of a row starts with the token before it, that of the first row with `<eos>`. Remaining tokens at the end
    are dropped, as in the papers' code. `stream` has the token ids `[N]` and may be mapped from a file.
    """

    def __init__(self, stream: torch.Tensor, eos_token_id: int, shard: ProcessShard, chunk_lengths: ChunkLengths):
        length = len(stream) // shard.num_rows
        if length == 0:
            raise ValueError(f"the training text has {len(stream)} tokens, too few for {shard.num_rows} rows")
        self.targets = stream[: length * shard.num_rows].view(shard.num_rows, length)[shard.rows]
        before = [stream[row * length - 1] if row else eos_token_id for row in range(shard.num_rows)[shard.rows]]
        self.tokens_before, self.chunk_lengths = torch.tensor(before).unsqueeze(1), chunk_lengths

    def chunks(self, epoch: int) -> list[tuple[int, int]]:
        """Returns start and end of every chunk of an epoch."""
        lengths, total, ends = self.chunk_lengths.draw(epoch), self.targets.shape[1], [0]
        while ends[-1] < total:
            ends.append(min(total, ends[-1] + next(lengths)))
        return list(pairwise(ends))

    def num_batches(self, epoch: int) -> int:
        return len(self.chunks(epoch))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for first, end in self.chunks(epoch)[start:]:
            targets = self.targets[:, first:end].long()
            before = self.targets[:, first - 1 : first].long() if first else self.tokens_before
            inputs = torch.cat([before, targets[:, :-1]], dim=1)
            yield Batch(inputs, targets, None, first > 0, self.chunk_lengths.lr_scale(end - first), targets.numel())


class StreamedTextBatches:
    """Streamed text: each text goes to the row with the fewest buffered tokens.

    The rows differ from those of `StreamBatches`. Tokens at the end that do not fill a chunk of all rows are dropped.
    Each process has its own texts (`own_texts`) and possibly another number of batches, but the same chunk lengths.
    `texts` returns the encoded texts of an epoch.
    """

    def __init__(
        self, texts: Callable[[], Iterator[list[int]]], eos_token_id: int, num_rows: int, chunk_lengths: ChunkLengths
    ):
        self.texts, self.eos_token_id, self.num_rows = texts, eos_token_id, num_rows
        self.chunk_lengths = chunk_lengths

    def num_batches(self, epoch: int) -> None:
        return None

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        lengths = self.chunk_lengths.draw(epoch)
        buffers = [[self.eos_token_id] for _ in range(self.num_rows)]
        number, length = 0, next(lengths)
        for ids in self.texts():
            min(buffers, key=len).extend(ids)
            while min(map(len, buffers)) > length:
                if number >= start:
                    rows = torch.tensor([row[: length + 1] for row in buffers])
                    scale = self.chunk_lengths.lr_scale(length)
                    yield Batch(rows[:, :-1], rows[:, 1:], None, number > 0, scale, rows[:, 1:].numel())
                for row in buffers:
                    del row[:length]
                number, length = number + 1, next(lengths)
        if number == 0:
            raise ValueError(f"the training text is too short for a batch of {self.num_rows} rows")


class SentenceBatches:
    """Independent sentences between two `<eos>`, in shuffled batches of similar length.

    Each epoch drops a random remainder of sentences that do not fill a batch. The seed and the epoch determine the
    order. Only the first `max_length` tokens of a sentence are kept.
    """

    def __init__(self, text: EncodedText, eos_token_id: int, shard: ProcessShard, max_length: int, seed: int):
        if len(text.ends) < shard.num_rows:
            raise ValueError(f"{len(text.ends)} training sentences are too few for a batch of {shard.num_rows}")
        self.text = text
        self.lengths = text.ends.diff(prepend=text.ends.new_zeros(1))
        self.eos_token_id, self.shard, self.max_length, self.seed = eos_token_id, shard, max_length, seed

    def num_batches(self, epoch: int) -> int:
        return len(self.lengths) // self.shard.num_rows

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        generator, size = Random(f"{self.seed} {epoch}"), self.shard.num_rows
        shuffled = array("q", range(len(self.lengths)))  # a list needs five times the memory
        generator.shuffle(shuffled)
        order = torch.frombuffer(shuffled, dtype=torch.int64)[: self.num_batches(epoch) * size]
        lengths = self.lengths[order].clamp(max=self.max_length)
        groups = order[lengths.argsort(stable=True)].view(-1, size)
        numbers = array("q", range(len(groups)))
        generator.shuffle(numbers)
        for number in numbers[start:]:
            sentences = [self._sentence(index) for index in groups[number].tolist()]
            inputs, targets, mask = pad_sentences(sentences, self.eos_token_id)
            num_items = int(mask.sum()) / self.shard.num_processes
            rows = self.shard.rows
            yield Batch(inputs[rows], targets[rows], mask[rows], False, 1.0, num_items)

    def _sentence(self, index: int) -> list[int]:
        end, length = self.text.ends[index].item(), self.lengths[index].item()
        return self.text.ids[end - length : end][: self.max_length].tolist()


def build_batches(recipe: LanguageModelRecipe, tokenizer: PreTrainedTokenizerBase, shard: ProcessShard) -> BatchSource:
    data, seed = recipe.data, recipe.optimization.seed
    texts = load_texts(data, "train")
    chunk_lengths = ChunkLengths(data.bptt_length, data.random_bptt, seed)
    if data.streaming:
        encoded = partial(encode_lines, own_texts(texts, shard), tokenizer, data.text_column)
        return StreamedTextBatches(encoded, tokenizer.eos_token_id, shard.batch_size, chunk_lengths)
    text = store_encoded(encode_lines(texts, tokenizer, data.text_column), Path(recipe.run.output_dir))
    if data.independent_sentences:
        return SentenceBatches(text, tokenizer.eos_token_id, shard, data.max_sentence_length, seed)
    return StreamBatches(text.ids, tokenizer.eos_token_id, shard, chunk_lengths)
