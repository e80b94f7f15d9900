"""Out-of-vocabulary words in which two tokenized sentences differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

BATCH_SIZE = 10_000


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
    if not any(isinstance(unit, str) for unit in first.units + second.units):
        return False
    edits = SequenceMatcher(None, first.units, second.units, autojunk=False).get_opcodes()
    return any(
        isinstance(unit, str)
        for tag, start, end, other_start, other_end in edits
        if tag != "equal"
        for unit in first.units[start:end] + second.units[other_start:other_end]
    )
