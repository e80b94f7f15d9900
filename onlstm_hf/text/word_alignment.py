"""Which word each token belongs to, for any tokenizer of Transformers: word-level or subword, fast or slow.

A model gives a syntactic distance for each token, a tree is drawn over words; these functions say where the words are.
"""

import re
from collections.abc import Sequence
from itertools import accumulate

from transformers import PreTrainedTokenizerBase

# What may stand in front of the last digit of a number.
_IN_NUMBERS = frozenset("0123456789.,:/\\-")


def encode_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """Encodes a sentence that is split into words, without special tokens.

    The ids are those of the text that has the words with single spaces between them, so that a byte-level tokenizer
    sees the space before a word that it saw in training. A token belongs to the word of its first visible character;
    one that has none (a space by itself) belongs to the word that follows. A word without any token (an empty string,
    a control character that is stripped) gets the unknown token, or a copy of the token beside it where the tokenizer
    has no unknown token.

    Args:
        tokenizer: Any tokenizer of Transformers.
        words: The words, in order.

    Returns:
        The token ids, and for each token the index of its word. The indices never fall, and none is left out.

    Raises:
        ValueError: The tokenizer has no token for any of the words, and neither an unknown nor an end token.
    """
    words = list(words)
    input_ids, word_indices = _encode(tokenizer, words)
    return _with_every_word(tokenizer, input_ids, word_indices, len(words))


def encode_sentence(
    tokenizer: PreTrainedTokenizerBase, text: str
) -> tuple[list[str], list[int], list[int], list[tuple[int, int]]]:
    """Splits a sentence into words and encodes it, without special tokens.

    The words are what white space separates; those of a word-level tokenizer (`build_word_tokenizer`) are its own
    tokens, so that it can separate punctuation and clitics, or characters. What the tokenizer leaves out of every text
    (punctuation, with the normalisers of this package) is no word.

    Args:
        tokenizer: Any tokenizer of Transformers.
        text: The sentence. Words are reported as they stand in it, neither normalised nor as the unknown token.

    Returns:
        The words, the token ids, for each token the index of its word, and for each word its `(start, end)` in `text`.

    Raises:
        ValueError: See `encode_words`.
    """
    if is_word_level(tokenizer):
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        input_ids, offsets = encoding["input_ids"], _whole_words(text, encoding["offset_mapping"])
        word_indices = list(range(len(offsets)))
    else:
        offsets = [match.span() for match in re.finditer(r"\S+", text)]
        words = [text[start:end] for start, end in offsets]
        input_ids, word_indices, kept = _encode_kept(tokenizer, words)
        offsets = [offsets[index] for index in kept]
        input_ids, word_indices = _with_every_word(tokenizer, input_ids, word_indices, len(kept))
    return [text[start:end] for start, end in offsets], input_ids, word_indices, offsets


def kept_words(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """The words between spaces of a text: all but those that the tokenizer leaves out of every text."""
    words = text.split()
    _, _, kept = _encode_kept(tokenizer, words)
    return [words[index] for index in kept]


def is_word_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether each token of the tokenizer is a whole word (or, for a character-level one, a character)."""
    return tokenizer.is_fast and type(tokenizer.backend_tokenizer.model).__name__ == "WordLevel"


def _encode_kept(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> tuple[list[int], list[int], list[int]]:
    """Ids, the index of each one's word among those that are kept, and the indices of these among all words."""
    input_ids, word_indices = _encode(tokenizer, words)
    without_token = set(range(len(words))).difference(word_indices)
    left_out = {index for index in without_token if _is_left_out(tokenizer, words[index])}
    kept = [index for index in range(len(words)) if index not in left_out]
    if left_out:
        input_ids, word_indices = _encode(tokenizer, [words[index] for index in kept])
    return input_ids, word_indices, kept


def _is_left_out(tokenizer: PreTrainedTokenizerBase, word: str) -> bool:
    """Whether nothing of a word reaches the tokenizer's model, so that it is not unknown but no word at all."""
    if not tokenizer.is_fast:
        return False
    splitter = tokenizer.backend_tokenizer
    written = word if splitter.normalizer is None else splitter.normalizer.normalize_str(word)
    return not (written if splitter.pre_tokenizer is None else splitter.pre_tokenizer.pre_tokenize_str(written))


def _encode(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> tuple[list[int], list[int]]:
    encode = _encode_by_offsets if tokenizer.is_fast else _encode_word_by_word
    return encode(tokenizer, words) if words else ([], [])


def _encode_by_offsets(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> tuple[list[int], list[int]]:
    text = " ".join(words)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)

    word_of_character = [index for index, word in enumerate(words) for _ in range(len(word) + 1)]
    following_word = len(words) - 1
    for position in reversed(range(len(text))):
        if text[position].isspace():
            word_of_character[position] = following_word
        following_word = word_of_character[position]

    word_indices = [word_of_character[start] for start, _ in encoding["offset_mapping"]]
    return encoding["input_ids"], list(accumulate(word_indices, max))


def _encode_word_by_word(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> tuple[list[int], list[int]]:
    input_ids, word_indices = [], []
    for index, word in enumerate(words):
        word_ids = tokenizer.encode(f" {word}" if index > 0 else word, add_special_tokens=False)
        input_ids += word_ids
        word_indices += [index] * len(word_ids)
    return input_ids, word_indices


def _with_every_word(
    tokenizer: PreTrainedTokenizerBase, input_ids: list[int], word_indices: list[int], num_words: int
) -> tuple[list[int], list[int]]:
    without_token = set(range(num_words)).difference(word_indices)
    if not without_token:
        return input_ids, word_indices

    substitute = tokenizer.unk_token_id
    copy_neighbour = substitute is None
    if copy_neighbour:
        substitute = input_ids[0] if input_ids else tokenizer.eos_token_id
    if substitute is None:
        raise ValueError(
            "the tokenizer has no token for any word of the sentence, and neither an unknown nor an end token to use "
            "instead; set tokenizer.unk_token"
        )
    tokens = [*zip(word_indices, input_ids, strict=True), *((index, None) for index in without_token)]
    tokens.sort(key=lambda token: token[0])
    complete_ids = []
    for _, token_id in tokens:
        complete_ids.append(substitute if token_id is None else token_id)
        if copy_neighbour:
            substitute = complete_ids[-1]
    return complete_ids, [index for index, _ in tokens]


def _whole_words(text: str, token_offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Widens offsets to the left where a normaliser wrote fewer characters than a number has (9.8 -> N)."""
    offsets = []
    previous_end = 0
    for start, end in token_offsets:
        while start > previous_end and text[end - 1].isdigit() and text[start - 1] in _IN_NUMBERS:
            start -= 1
        offsets.append((start, end))
        previous_end = end
    return offsets
