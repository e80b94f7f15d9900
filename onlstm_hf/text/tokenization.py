"""Tokenizers built from text: words or characters (`build_word_tokenizer`), subwords (`build_subword_tokenizer`).

The result is an ordinary `PreTrainedTokenizerFast`. Once saved, it does not need this package.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ..utils.files import read_text_file
from .word_splitting import word_normalizer, word_pre_tokenizer

# Prefix of each subword that does not begin a word.
_CONTINUES = "##"
# Long lines are read in pieces that end with a word, as a tokenizer needs many times the memory of its input.
_PIECE = re.compile(r"(?s).{1,1000000}[^ ]*")
# Names of text files, unlike words such as "and/or", "U.S" and "3.5".
_TEXT_FILE = re.compile(r"\S*\.(?:txt|text|tok|tokens|raw|train|valid|dev|test|md)")


def build_word_tokenizer(
    source: str | os.PathLike | Iterable[Any] | None = None,
    *,
    vocabulary: Sequence[str] | Mapping[str, int] | None = None,
    vocab_size: int | None = None,
    min_count: int = 1,
    lowercase: bool = False,
    digits_to_n: bool = False,
    drop_punctuation: bool = False,
    split: str = "whitespace",
    text_column: str = "text",
    eos_token: str = "<eos>",
    unk_token: str = "<unk>",
    pad_token: str | None = "<pad>",
    token_type_ids: bool = False,
    padding_side: str = "right",
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer whose vocabulary is the words (or characters) of a text.

    The ids are `eos_token`, `unk_token`, `pad_token`, then the words by decreasing count. Ties are sorted by code
    points, so the same text always gives the same ids. Special tokens are also recognised in the text (`<unk>` in the
    Penn Treebank files). The tokenizer never adds `eos_token`: the training stream and `parse` add it.

    Offsets refer to the original text, with one exception: the offsets of an `N` of `digits_to_n` cover only the last
    character of the number (`onlstm_hf.text.word_alignment.word_offsets` returns those of the whole number).

    Args:
        source: A text file, a list of text files, an iterable of strings, or a dataset of the `datasets` library, of
            which `text_column` is read. Strings of a list or tuple are file names if the first of them is an existing
            file, or if all have suffixes of text files (`.txt`, `.tokens`, ...).
        vocabulary: Instead of `source`, the words in the order of their ids, or a mapping from words to ids
            0, 1, 2, ... Missing special tokens are appended.
        vocab_size: The maximum number of ids, special tokens included. Unlimited by default.
        min_count: Words with a lower count are out of vocabulary.
        lowercase: Lower-case the text. With `digits_to_n`, an `N` in the text is kept as the number symbol.
        digits_to_n: Replace words that are numbers by `N`, as in the Penn Treebank text for language modelling: 61,
            9.8, 1,000, 1/2, 1986-87 and 3:15, but not 1990s or 30-year. `%` also becomes `N`: "5 %" is "N N".
        drop_punctuation: Drop words without a letter or digit, as in the Penn Treebank text for language modelling.
            "treebank" keeps the signs `$ & # '` that are in the vocabulary. "whitespace" also drops marks at either
            end of a word, and the full stop at the end of a text. In a list of words, such words are unknown.
        split: "whitespace": white space separates words.
            "treebank": splits English text like the Penn Treebank, with punctuation and clitics as words (`do n't`,
            `John 's`) and periods of abbreviations kept. Curly apostrophes become straight, a pound sign becomes `#`,
            and a slash within a word `\\/`.
            "characters": each character is a token, also the space.
        text_column: The dataset column with the text.
        eos_token: Ends a sentence or document; also the tokenizer's `bos_token`.
        unk_token: Replaces words that are out of vocabulary.
        pad_token: Pads batches. It may equal `eos_token`; None means no such token.
        token_type_ids: Also return token type ids (first or second text), which classifiers of pairs need.
        padding_side: "right", or "left", which Transformers requires for `generate`. The models of this package
            compute the same with both.

    Returns:
        The tokenizer. `decode` joins words with single spaces, and characters without.

    Raises:
        FileNotFoundError: A file of `source` does not exist.
        ValueError: The text is empty or not UTF-8, or an argument is out of range.
    """
    if (source is None) == (vocabulary is None):
        raise ValueError("give either a source to take the vocabulary from, or the vocabulary itself")
    special_tokens = list(dict.fromkeys(token for token in (eos_token, unk_token, pad_token) if token is not None))
    if eos_token == unk_token or not all(special_tokens):
        raise ValueError(f"the special tokens must be non-empty and eos and unk distinct; got {special_tokens}")
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1, got {min_count}")
    if vocab_size is not None and vocab_size <= len(special_tokens):
        special = f"{len(special_tokens)}, the number of special tokens ({' '.join(special_tokens)})"
        raise ValueError(f"vocab_size is {vocab_size}; it must exceed {special}, to leave room for words")
    backend = Tokenizer(models.WordLevel())
    backend.normalizer = word_normalizer(split, lowercase, digits_to_n, drop_punctuation)
    backend.pre_tokenizer = word_pre_tokenizer(split, drop_punctuation, special_tokens)
    if split == "characters":
        backend.decoder = decoders.Fuse()
    if vocabulary is not None:
        words = _ordered_words(vocabulary)
        words += [token for token in special_tokens if token not in words]
    else:
        words = special_tokens + _words_by_count(backend, read_source(source, text_column), special_tokens, min_count)
        if len(words) == len(special_tokens):
            raise ValueError(f"the source has no word that occurs {min_count} times or more: is the text empty?")
        words = words[:vocab_size]
    backend.pre_tokenizer = word_pre_tokenizer(split, drop_punctuation, special_tokens, words)
    backend.model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=unk_token)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=eos_token,
        eos_token=eos_token,
        unk_token=unk_token,
        pad_token=pad_token,
        clean_up_tokenization_spaces=False,
        padding_side=padding_side,
        model_input_names=["input_ids", "attention_mask", *(["token_type_ids"] if token_type_ids else [])],
    )


def build_subword_tokenizer(
    source: str | os.PathLike | Iterable[Any],
    *,
    parts: str = "bpe",
    vocab_size: int = 8000,
    min_count: int = 2,
    split: str = "whitespace",
    drop_punctuation: bool = False,
    text_column: str = "text",
    **options: Any,
) -> PreTrainedTokenizerFast:
    """Builds a subword tokenizer, so that few words are out of vocabulary.

    Words are defined as in `build_word_tokenizer`, and no subword crosses a word boundary, so the leaves of trees are
    still words (`onlstm_hf.text.word_alignment`). Subwords that do not begin a word have the prefix `##`. Only words
    with a character that is not in the vocabulary have the unknown token. The same text always gives the same ids.

    Args:
        source, drop_punctuation, text_column: See `build_word_tokenizer`.
        parts: "bpe": byte-pair encoding over characters (Sennrich et al., 2016), with merges until there are
            `vocab_size` ids. "characters": each character of a word is a subword.
        vocab_size: The maximum number of ids, special tokens included. Single characters come first, by decreasing
            count; a character has separate ids at the beginning of words and within them.
        min_count: The minimum count of a pair of subwords to be merged.
        split: "whitespace" or "treebank".
        options: `lowercase`, `digits_to_n`, `eos_token`, `unk_token`, `pad_token`, `token_type_ids` and `padding_side`
            of `build_word_tokenizer`.

    Returns:
        The tokenizer. `decode` joins the subwords of words.

    Raises:
        FileNotFoundError: A file of `source` does not exist.
        ValueError: The text is empty or not UTF-8, or an argument is out of range.
    """
    if parts not in ("bpe", "characters"):
        raise ValueError(f"unknown parts {parts!r}; choose 'bpe' or 'characters'")
    if split == "characters":
        raise ValueError("words that are characters have no subwords; choose another split, or build_word_tokenizer")
    options |= {"split": split, "drop_punctuation": drop_punctuation, "vocab_size": vocab_size}
    tokenizer = build_word_tokenizer(vocabulary=[], min_count=min_count, **options)  # only the special tokens
    backend, special_tokens = tokenizer.backend_tokenizer, tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    backend.pre_tokenizer = word_pre_tokenizer(split, drop_punctuation, special_tokens)
    word_counts = Counter()
    for text in _without(special_tokens, read_source(source, text_column)):
        written = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
        word_counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(written))
    if not word_counts:
        raise ValueError("the source has no word: is the text empty?")

    character_counts = Counter()
    for word, count in word_counts.items():
        for character in _characters(word):
            character_counts[character] += count
    characters = sorted(character_counts, key=lambda character: (-character_counts[character], character))
    characters = characters[: vocab_size - len(special_tokens)]
    subwords = [*special_tokens, *characters]
    merges = _merges(word_counts, characters, vocab_size - len(subwords), min_count) if parts == "bpe" else []
    subwords += [first + second.removeprefix(_CONTINUES) for first, second in merges]
    ids = {subword: index for index, subword in enumerate(dict.fromkeys(subwords))}
    backend.model = models.BPE(ids, merges, unk_token=tokenizer.unk_token, continuing_subword_prefix=_CONTINUES)
    backend.pre_tokenizer = word_pre_tokenizer(split, drop_punctuation, special_tokens, ids)
    backend.decoder = decoders.WordPiece(prefix=_CONTINUES, cleanup=False)
    return tokenizer


def read_source(source: str | os.PathLike | Iterable[Any], text_column: str) -> Iterator[str]:
    """Yields the texts of a source of `build_word_tokenizer`, one line or row at a time."""
    if isinstance(source, Mapping):
        raise ValueError(f"the source has several splits ({', '.join(map(str, source))}); choose one of them")
    if isinstance(source, (str, os.PathLike)):
        source = [Path(source)]
    elif isinstance(source, (list, tuple)) and _are_file_names(source):
        source = map(Path, source)
    for item in source:
        if isinstance(item, os.PathLike):
            for line in read_text_file(item):
                yield from _PIECE.findall(line)
            continue
        text = item.get(text_column) if isinstance(item, Mapping) else item
        if not isinstance(text, str):
            raise ValueError(
                f"expected strings, paths, or rows with text in the column {text_column!r}, not {item!s:.99}"
            )
        yield text


def _are_file_names(items: Sequence[Any]) -> bool:
    """Returns whether all items are strings, and the first is a file or all have suffixes of text files."""
    if not items or not all(isinstance(item, str) for item in items):
        return False
    return os.path.isfile(items[0]) or all(map(_TEXT_FILE.fullmatch, items))


def _without(special_tokens: Sequence[str], texts: Iterable[str]) -> Iterator[str]:
    """Yields the pieces of text between special tokens."""
    special_token = re.compile("|".join(map(re.escape, special_tokens)))
    return (piece for text in texts for piece in special_token.split(text))


def _words_by_count(
    backend: Tokenizer, texts: Iterable[str], special_tokens: Sequence[str], min_count: int
) -> list[str]:
    """Splits texts as `backend` does, and returns the words by decreasing count, then by code points."""
    trainer = trainers.WordLevelTrainer(vocab_size=sys.maxsize, min_frequency=min_count, show_progress=False)
    backend.train_from_iterator(_without(special_tokens, texts), trainer)
    ids = backend.get_vocab()
    return [word for word in sorted(ids, key=ids.get) if word not in special_tokens]


def _merges(
    word_counts: Mapping[str, int], characters: Sequence[str], num_parts: int, min_count: int
) -> list[tuple[str, str]]:
    """Returns the BPE merges, in order, until there are `num_parts` new subwords.

    The trainer breaks ties by ids. As only special tokens have ids in a fixed order, all characters are passed as
    special tokens. They include each character without `##`, even if no word begins with it, as the trainer adds it.
    """
    vocabulary = set(characters)
    words = [word for word in word_counts if vocabulary.issuperset(_characters(word))]
    parts = list(dict.fromkeys([*characters, *sorted(set("".join(words)))]))
    backend = Tokenizer(models.BPE(continuing_subword_prefix=_CONTINUES))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(parts) + num_parts,
        min_frequency=min_count,
        special_tokens=parts,
        continuing_subword_prefix=_CONTINUES,
        show_progress=False,
    )
    backend.train_from_iterator((" ".join([word] * word_counts[word]) for word in words), trainer)
    return [tuple(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]


def _characters(word: str) -> list[str]:
    """Splits a word into subwords of one character."""
    return [word[0], *(_CONTINUES + character for character in word[1:])]


def _ordered_words(vocabulary: Sequence[str] | Mapping[str, int]) -> list[str]:
    ids = vocabulary if isinstance(vocabulary, Mapping) else {word: index for index, word in enumerate(vocabulary)}
    words = sorted(ids, key=ids.get)
    if [ids[word] for word in words] != list(range(len(vocabulary))):
        raise ValueError(f"a vocabulary must have every word once, with the ids 0 to {len(vocabulary) - 1}")
    return words
