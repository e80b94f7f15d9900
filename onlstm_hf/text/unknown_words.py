"""Out-of-vocabulary words: their fraction of a text, and those in which two tokenized sentences differ."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from . import word_alignment

BATCH_SIZE = 10_000


def unknown_words(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[str | Sequence[str]]) -> float | None:
    """Returns the fraction of words, from 0 to 1, with at least one unknown token; `None` if there are no words.

    An unknown token that is written in the text counts, too. Sentences are strings or lists of words.
    """
    are_unknown = []
    for sentence in sentences:
        if isinstance(sentence, str):
            _, ids, word_indices, _ = word_alignment.encode_sentence(tokenizer, sentence)
        else:
            ids, word_indices = word_alignment.encode_words(tokenizer, sentence)
        are_unknown += word_alignment.unknown_words(tokenizer, ids, word_indices)
    return sum(are_unknown) / len(are_unknown) if are_unknown else None


class SentenceTokens(NamedTuple):
    """The token ids of a sentence, and as `units` the same with the text in place of each unknown token."""

    ids: tuple[int, ...]
    units: tuple[int | str, ...]


def tokenize_sentences(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> Iterator[SentenceTokens]:
    """Tokenizes sentences without special tokens.

    Raises:
        ValueError: if the tokenizer is not fast and so has no offsets.
    """
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} has no token offsets; use a fast tokenizer")
    unknown_id = tokenizer.unk_token_id
    # In batches, as the offsets of all tokens would need much memory.
    for first in range(0, len(sentences), BATCH_SIZE):
        texts = sentences[first : first + BATCH_SIZE]
        encoding = tokenizer(
            texts, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True, verbose=False
        )
        for text, ids, offsets in zip(texts, encoding["input_ids"], encoding["offset_mapping"], strict=True):
            units = [
                text[start:end] if token == unknown_id else token
                for token, (start, end) in zip(ids, offsets, strict=True)
            ]
            yield SentenceTokens(tuple(ids), tuple(units))


def differ_in_unknown_word(first: SentenceTokens, second: SentenceTokens) -> bool:
    """Returns whether two sentences differ in an out-of-vocabulary word."""
    edits = SequenceMatcher(None, first.units, second.units, autojunk=False).get_opcodes()
    return any(
        isinstance(unit, str)
        for tag, start, end, other_start, other_end in edits
        if tag != "equal"
        for unit in first.units[start:end] + second.units[other_start:other_end]
    )
