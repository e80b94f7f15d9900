"""Sentences in tokens, and which of their words a model does not know."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

TOKENIZED_AT_ONCE = 10_000


class SentenceTokens(NamedTuple):
    """A sentence in tokens.

    Attributes:
        ids: the ids of the tokens.
        units: the same, with the text itself in place of an unknown token.
    """

    ids: tuple[int, ...]
    units: tuple[int | str, ...]


def tokenize_sentences(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> Iterator[SentenceTokens]:
    """Encodes sentences without special tokens.

    Raises:
        ValueError: if the tokenizer does not tell where in the text its tokens are.
    """
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} does not tell the places of its tokens; use a fast tokenizer")
    unknown_id = tokenizer.unk_token_id
    # The places of all tokens at once would take much memory.
    for start in range(0, len(sentences), TOKENIZED_AT_ONCE):
        texts = sentences[start : start + TOKENIZED_AT_ONCE]
        encoding = tokenizer(
            texts, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True, verbose=False
        )
        for text, ids, places in zip(texts, encoding["input_ids"], encoding["offset_mapping"], strict=True):
            units = [
                text[first:last] if token == unknown_id else token
                for token, (first, last) in zip(ids, places, strict=True)
            ]
            yield SentenceTokens(tuple(ids), tuple(units))


def differ_in_unknown_word(first: SentenceTokens, second: SentenceTokens) -> bool:
    """Returns whether a word in which two sentences differ is outside the vocabulary."""
    if not any(isinstance(unit, str) for unit in first.units + second.units):
        return False
    edits = SequenceMatcher(None, first.units, second.units, autojunk=False).get_opcodes()
    return any(
        isinstance(unit, str)
        for tag, start, end, other_start, other_end in edits
        if tag != "equal"
        for unit in first.units[start:end] + second.units[other_start:other_end]
    )
