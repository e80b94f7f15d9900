"""Vocabulary coverage: the fraction of a text's words that are out of vocabulary."""

from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

from ..text.word_alignment import encode_sentence, encode_words


def unknown_words(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[str | Sequence[str]]) -> float | None:
    """Returns the fraction of unknown words, which are words with at least one unknown token.

    An unknown token that is written in the text counts, too.

    Args:
        tokenizer: the model's tokenizer.
        sentences: strings, or lists of words.

    Returns:
        From 0 to 1; 0 if the tokenizer has no unknown token, and `None` if there are no words.
    """
    total = unknown = 0
    for sentence in sentences:
        if isinstance(sentence, str):
            words, ids, word_indices, _ = encode_sentence(tokenizer, sentence)
        else:
            words = sentence
            ids, word_indices = encode_words(tokenizer, sentence)
        total += len(words)
        unknown += len(
            {index for index, token in zip(word_indices, ids, strict=True) if token == tokenizer.unk_token_id}
        )
    return unknown / total if total else None
