"""Vocabulary coverage: the share of a text's words that are unknown to a model."""

from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

from ..text.word_alignment import encode_sentence, encode_words


def unknown_words(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[str | Sequence[str]]) -> float | None:
    """Returns the share of unknown words, also of those that the text itself writes as the unknown token.

    A word of several tokens counts as unknown if one of them is.

    Args:
        tokenizer: of the model.
        sentences: strings, or lists of words.

    Returns:
        From 0 to 1; 0 where the tokenizer has no unknown token, and `None` where there are no words.
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
