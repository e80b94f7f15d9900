"""Sentences in the spelling of the text that models were trained on."""

from functools import cache

from tokenizers import Tokenizer

from .tokenization import build_word_tokenizer


def spell_as_treebank(sentence: str) -> str:
    """The sentence as the Penn Treebank text for language modelling has it: `He hasn't left.` is `he has n't left`."""
    tokenizer = _treebank_tokenizer()
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(sentence))
    return " ".join(word for word, _ in words if any(character.isalnum() for character in word))


@cache
def _treebank_tokenizer() -> Tokenizer:
    """A tokenizer of which only the splitting of text into words is used."""
    return build_word_tokenizer(vocabulary=["N"], split="treebank", lowercase=True, digits_to_n=True).backend_tokenizer
