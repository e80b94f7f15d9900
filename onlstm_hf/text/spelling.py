"""Sentences in the spelling of the text that models were trained on."""

from collections.abc import Collection
from functools import cache

from tokenizers import Tokenizer

from .tokenization import build_word_tokenizer


def spell_as_treebank(sentence: str, symbols: Collection[str] = ()) -> str:
    """The sentence as the Penn Treebank text for language modelling has it: `He hasn't left.` is `he has n't left`.

    Args:
        sentence: the sentence. A curly apostrophe counts as a straight one.
        symbols: words without a letter or digit that are kept, `$` for instance; all others are dropped.
    """
    tokenizer = _treebank_tokenizer()
    straight = sentence.replace("\u2019", "'")
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(straight))
    return " ".join(word for word, _ in words if word in symbols or any(character.isalnum() for character in word))


@cache
def _treebank_tokenizer() -> Tokenizer:
    """A tokenizer of which only the splitting of text into words is used."""
    return build_word_tokenizer(vocabulary=["N"], split="treebank", lowercase=True, digits_to_n=True).backend_tokenizer
