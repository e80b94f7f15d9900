"""Alignment of tokens with words, for any tokenizer of Transformers: word-level or subword, fast or slow.

A model returns a syntactic distance for each token, but the leaves of a tree are words.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby
from unicodedata import category

from tokenizers import PreTokenizedString, Tokenizer
from transformers import PreTrainedTokenizerBase

# A number that a normalizer replaced by N: the first digit after the previous word, and all that follows.
_NUMBER = re.compile(r"\.?\d.*", re.DOTALL)

# A bracket in the spelling of the Penn Treebank, or any one character with what joins it to the rest of an emoji.
_BRACKET_OR_CHARACTER = re.compile("(-[LR][RCS]B-)|.[\u200d\U000e0020-\U000e007f]*", re.DOTALL | re.IGNORECASE)


def encode_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """Encodes a sentence that is split into words, without special tokens.

    A word-level tokenizer looks up each word, unchanged or normalised, so each word is one token. A word that its rule
    would split or drop is unknown.

    Any other tokenizer encodes the words joined by single spaces, so a byte-level one sees the spaces as in training.
    A token belongs to the word of its first visible character; a token of white space belongs to the next word. A word
    without tokens (an empty string, a stripped control character) gets the unknown token, or a copy of the adjacent
    token if the tokenizer has no unknown token.

    Returns:
        The token ids, and for each token the index of its word. The indices never decrease and include every word.

    Raises:
        ValueError: The tokenizer has no token for any of the words, and neither an unknown nor an end token.
    """
    words = list(words)
    if is_word_level(tokenizer) and type(tokenizer.backend_tokenizer.decoder).__name__ != "Fuse":  # not characters
        return _look_up(tokenizer, words), list(range(len(words)))
    if tokenizer.is_fast:
        starts = accumulate((len(word) + 1 for word in words), initial=0)
        ends = [start + len(word.rstrip()) if word.strip() else 0 for start, word in zip(starts, words, strict=False)]
        tokens_of_words = _tokens_of_words(tokenizer, " ".join(words), list(accumulate(ends, max)))
    else:
        texts = [f" {word}" if index > 0 else word for index, word in enumerate(words)]
        tokens_of_words = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    return _with_every_word(tokenizer, tokens_of_words)


def encode_sentence(
    tokenizer: PreTrainedTokenizerBase, text: str
) -> tuple[list[str], list[int], list[int], list[tuple[int, int]]]:
    """Splits a sentence into words and encodes it, without special tokens.

    A tokenizer of `build_word_tokenizer` or `build_subword_tokenizer` defines words by its own rule, which may split
    off punctuation, clitics or characters, or drop punctuation. With any other tokenizer, white space separates words.

    Returns:
        The words as substrings of `text`, the token ids, the word index of each token, and the `(start, end)` of each
        word.

    Raises:
        ValueError: See `encode_words`.
    """
    offsets = word_offsets(tokenizer, text)
    words = [text[start:end] for start, end in offsets]
    if not has_word_rule(tokenizer):
        return words, *encode_words(tokenizer, words), offsets
    tokens_of_words = _tokens_of_words(tokenizer, text, [end for _, end in offsets])
    return words, *_with_every_word(tokenizer, tokens_of_words), offsets


def word_offsets(tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[int, int]]:
    """Returns the `(start, end)` of each word of a text, see `encode_sentence`.

    Token offsets are not enough: for a number that became N they cover only the last character, and special and added
    tokens are also matched within words.
    """
    if not has_word_rule(tokenizer):
        return [match.span() for match in re.finditer(r"\S+", text)]
    backend, pieces = tokenizer.backend_tokenizer, PreTokenizedString(text)
    if backend.normalizer is not None:
        pieces.normalize(backend.normalizer.normalize)
    backend.pre_tokenizer.pre_tokenize(pieces)
    offsets, previous_end = [], 0
    for piece, (start, end), _ in pieces.get_splits("original", "char"):
        if piece == "N" and text[start:end] != "N" and (number := _NUMBER.search(text[previous_end:end])):
            start = previous_end + number.start()
        offsets.append((start, end))
        previous_end = end
    return offsets


def mark_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Returns the `(start, end)` of the marks before each word of a text, and of those after the last word.

    Marks are all visible characters between words. Repeated characters (`...`, `--`) are one mark, and so are adjacent
    symbols such as the parts of an emoji. Brackets and directed quotation marks (`“`, `»`) are separate, as each has a
    partner. `offsets` are those of the words.
    """

    def kind(found: re.Match[str]) -> str:
        character = text[found.start()]
        if character.isspace() or category(character) in ("Cc", "Cf"):  # invisible
            return ""
        if found[1] or category(character) in ("Ps", "Pe", "Pi", "Pf"):
            return f"{character} at {found.start()}"
        return character if category(character).startswith("P") else "symbols"

    gaps = zip([0, *(end for _, end in offsets)], [*(start for start, _ in offsets), len(text)], strict=True)
    marks = []
    for gap in gaps:
        runs = ((name, list(found)) for name, found in groupby(_BRACKET_OR_CHARACTER.finditer(text, *gap), kind))
        marks.append([(found[0].start(), found[-1].end()) for name, found in runs if name])
    return marks


def words_after_marks(text: str, offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """Returns for each word, given the words' offsets, whether it follows a mark (see `mark_offsets`)."""
    return [bool(marks) for marks in mark_offsets(text, offsets)[:-1]]


def unknown_words(
    tokenizer: PreTrainedTokenizerBase, input_ids: Sequence[int], word_indices: Sequence[int]
) -> list[bool]:
    """Returns for each word whether one of its tokens is the unknown token."""
    unknown = [False] * (word_indices[-1] + 1 if word_indices else 0)
    for token, word in zip(input_ids, word_indices, strict=True):
        unknown[word] |= token == tokenizer.unk_token_id
    return unknown


def is_word_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Returns whether each token is a whole word, or a character for a tokenizer of characters."""
    return tokenizer.is_fast and type(tokenizer.backend_tokenizer.model).__name__ == "WordLevel"


def has_word_rule(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Returns whether the tokenizer's own normalizer and pre-tokenizer define words."""
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.pre_tokenizer is None:
        return False
    model = tokenizer.backend_tokenizer.model
    is_subwords = type(model).__name__ == "BPE" and model.continuing_subword_prefix is not None
    return is_word_level(tokenizer) or is_subwords


def _look_up(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> list[int]:
    backend, unknown = tokenizer.backend_tokenizer, tokenizer.unk_token_id
    ids = tokenizer.convert_tokens_to_ids(words)
    for index, word in enumerate(words):
        if ids[index] == unknown:
            written = word if backend.normalizer is None else backend.normalizer.normalize_str(word)
            if _pieces(backend, word) in ([], [word]) and _pieces(backend, written) == [written]:
                ids[index] = tokenizer.convert_tokens_to_ids(written)
    return ids


def _pieces(backend: Tokenizer, text: str) -> list[str]:
    if backend.pre_tokenizer is None:
        return [text]
    return [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def _tokens_of_words(tokenizer: PreTrainedTokenizerBase, text: str, ends: Sequence[int]) -> list[list[int]]:
    """Encodes a text. A token belongs to the first of the words, given by their ends, that ends after its start."""
    tokens_of_words: list[list[int]] = [[] for _ in ends]
    if ends:
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        word = 0
        for token, (start, _) in zip(encoding["input_ids"], encoding["offset_mapping"], strict=True):
            word = max(word, bisect_right(ends, start, hi=len(ends) - 1))
            tokens_of_words[word].append(token)
    return tokens_of_words


def _with_every_word(
    tokenizer: PreTrainedTokenizerBase, tokens_of_words: list[list[int]]
) -> tuple[list[int], list[int]]:
    """Returns all token ids and their words. A word without tokens gets the unknown token or an adjacent one."""
    unknown = tokenizer.unk_token_id
    previous = next((tokens[0] for tokens in tokens_of_words if tokens), tokenizer.eos_token_id)
    for tokens in tokens_of_words:
        if not tokens:
            if unknown is None and previous is None:
                raise ValueError("the tokenizer has no token for any word of the sentence; set tokenizer.unk_token")
            tokens.append(previous if unknown is None else unknown)
        previous = tokens[-1]
    indices = [word for word, tokens in enumerate(tokens_of_words) for _ in tokens]
    return [token for tokens in tokens_of_words for token in tokens], indices
