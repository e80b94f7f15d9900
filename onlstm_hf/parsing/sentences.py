"""Sentences as models read them, grouped in windows and batches."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils.logging import get_logger

from ..text.word_alignment import encode_sentence, encode_words, mark_offsets, unknown_words, words_after_marks
from ..trees.distances import tree_from_distances
from ..trees.induced_tree import InducedTree
from ..trees.punctuation import attach_marks, raise_at_marks

logger = get_logger(__name__)
T = TypeVar("T")
# Chinese, Japanese, Thai, Lao, Khmer or Burmese: ten characters in a row, or a whole text of at least four.
_UNSPACED = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
_UNSEGMENTED = rf"{_UNSPACED}{{10}}|^\W*{_UNSPACED}{{4,}}\W*$"

MAX_TOKENS_PER_WINDOW = 1 << 20
MAX_TOKENS_PER_BATCH = 1 << 14


class SentenceUnits(NamedTuple):
    """A sentence as the model reads it.

    Attributes:
        units: its words or tokens.
        input_ids: the ids of its tokens.
        unit_of_token: the index of each token's unit.
        unknown: whether each unit contains the unknown token; `None` without a tokenizer.
        text: the sentence, if it was given as a string.
        offsets: the start and end of each unit in the text.
    """

    units: list[str]
    input_ids: list[int]
    unit_of_token: list[int]
    unknown: list[bool] | None = None
    text: str | None = None
    offsets: list[tuple[int, int]] | None = None


def read_text(tokenizer: PreTrainedTokenizerBase, text: str) -> SentenceUnits:
    """Returns the words of a text by the tokenizer's rule. Every parse of a text starts here."""
    words, input_ids, word_of_token, offsets = encode_sentence(tokenizer, text)
    if re.search(_UNSEGMENTED, text):
        logger.warning_once(
            "A text in a language that is written without spaces counts as one word: first segment it into words "
            "separated by spaces"
        )
    return SentenceUnits(
        words, input_ids, word_of_token, unknown_words(tokenizer, input_ids, word_of_token), text, offsets
    )


def read_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> SentenceUnits:
    """Returns the units of a sentence that is given as words."""
    input_ids, word_of_token = encode_words(tokenizer, words)
    return SentenceUnits(list(words), input_ids, word_of_token, unknown_words(tokenizer, input_ids, word_of_token))


def build_tree(
    sentence: SentenceUnits, distances: list[float], branching_bias: str = "right", punctuation: str = "drop"
) -> InducedTree:
    """Builds the tree of a sentence from the distances of its units; see `parse`."""
    if punctuation == "cue" and sentence.offsets is not None:
        distances = raise_at_marks(distances, words_after_marks(sentence.text, sentence.offsets))
    tree = tree_from_distances(distances, sentence.units, branching_bias)
    tree = replace(
        tree,
        offsets=None if sentence.offsets is None else tuple(sentence.offsets),
        unknown=None if sentence.unknown is None else tuple(sentence.unknown),
    )
    if punctuation == "attach" and sentence.offsets is not None:
        return attach_marks(tree, sentence.text, mark_offsets(sentence.text, sentence.offsets))
    return tree


def first_of_each_unit(values: Sequence[T], unit_of_token: Sequence[int]) -> list[T]:
    """Returns the value of the first token of every unit. Ignores values of padding, after the last token."""
    previous_units = [None, *unit_of_token]
    return [
        value for value, unit, previous in zip(values, unit_of_token, previous_units, strict=False) if unit != previous
    ]


def token_ids(owner: PreTrainedConfig | PreTrainedTokenizerBase | None, kind: str) -> list[int]:
    """Returns the ids, possibly none or several, of a special token (`"eos"`) of a configuration or tokenizer."""
    value = getattr(owner, f"{kind}_token_id", None)
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def is_one_sentence(sentences) -> bool:
    if isinstance(sentences, torch.Tensor):
        return sentences.dim() < 2
    if isinstance(sentences, str):
        return True
    if hasattr(sentences, "tolist"):  # an array
        sentences = sentences.tolist()
    return isinstance(sentences, list | tuple) and len(sentences) > 0 and isinstance(sentences[0], int)


def batches(window: list[SentenceUnits], batch_size: int) -> Iterator[list[int]]:
    """Yields indices of sentences of similar length, with at most `MAX_TOKENS_PER_BATCH` tokens and padding."""
    batch: list[int] = []
    for index in sorted(range(len(window)), key=lambda i: len(window[i].input_ids)):
        length = len(window[index].input_ids)
        if batch and (len(batch) == batch_size or (len(batch) + 1) * length > MAX_TOKENS_PER_BATCH):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
