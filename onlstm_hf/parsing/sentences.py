"""Sentences as models read them, put together in windows and batches."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ..utils.windows import windows

MAX_TOKENS_PER_WINDOW = 1 << 20
MAX_TOKENS_PER_BATCH = 1 << 14


class SentenceUnits(NamedTuple):
    """A sentence as the model reads it: its units (words or tokens), token ids, and each token's unit."""

    units: list[str]
    input_ids: list[int]
    unit_of_token: list[int]


def first_of_each_unit(token_distances: list[float], unit_of_token: list[int]) -> list[float]:
    """The distance of the first token of every unit. Distances beyond the last token are those of padding."""
    previous_units = [None, *unit_of_token]
    return [
        distance
        for distance, unit, previous in zip(token_distances, unit_of_token, previous_units, strict=False)
        if unit != previous
    ]


def token_ids(owner: PreTrainedConfig | PreTrainedTokenizerBase | None, kind: str) -> list[int]:
    """The ids of a kind of special token (`"eos"`) of a configuration or tokenizer: none, one, or several."""
    value = getattr(owner, f"{kind}_token_id", None)
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def token_names(ids: list[int], tokenizer: PreTrainedTokenizerBase | None) -> list[str]:
    """The tokenizer's names; the number where there is no tokenizer, or it is smaller than the model's vocabulary."""
    names = [None] * len(ids) if tokenizer is None else tokenizer.convert_ids_to_tokens(ids)
    return [str(token) if name is None else name for token, name in zip(ids, names, strict=True)]


def is_one_sentence(sentences) -> bool:
    if isinstance(sentences, torch.Tensor):
        return sentences.dim() < 2
    if isinstance(sentences, str):
        return True
    if hasattr(sentences, "tolist"):  # an array
        sentences = sentences.tolist()
    return isinstance(sentences, list | tuple) and len(sentences) > 0 and isinstance(sentences[0], int)


def sentence_windows(sentences: Iterable[SentenceUnits], size: int) -> Iterator[list[SentenceUnits]]:
    """Neighbouring sentences, at most `size` of them and not many more than `MAX_TOKENS_PER_WINDOW` tokens."""
    return windows(sentences, size, lambda sentence: len(sentence.input_ids), MAX_TOKENS_PER_WINDOW)


def batches(window: list[SentenceUnits], batch_size: int) -> Iterator[list[int]]:
    """Indices of sentences of similar length, at most `MAX_TOKENS_PER_BATCH` tokens with their padding."""
    batch: list[int] = []
    for index in sorted(range(len(window)), key=lambda i: len(window[i].input_ids)):
        length = len(window[index].input_ids)
        if batch and (len(batch) == batch_size or (len(batch) + 1) * length > MAX_TOKENS_PER_BATCH):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
