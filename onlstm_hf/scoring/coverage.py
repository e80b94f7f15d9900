"""Vocabulary coverage: the fraction of a text's words that are out of vocabulary."""

from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

from ..text import word_alignment


def unknown_words(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[str | Sequence[str]]) -> float | None:
    """Returns the fraction of words, from 0 to 1, with at least one unknown token; `None` if there are no words.

    An unknown token that is written in the text counts, too. Sentences are strings or lists of words.
    """
    total = unknown = 0
    for sentence in sentences:
        if isinstance(sentence, str):
            _, ids, word_indices, _ = word_alignment.encode_sentence(tokenizer, sentence)
        else:
            ids, word_indices = word_alignment.encode_words(tokenizer, sentence)
        of_sentence = word_alignment.unknown_words(tokenizer, ids, word_indices)
        total += len(of_sentence)
        unknown += sum(of_sentence)
    return unknown / total if total else None
