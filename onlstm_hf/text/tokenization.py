"""Tokenizers built from text: of words or characters (`build_word_tokenizer`), or of parts of words
(`build_subword_tokenizer`).

The result is an ordinary `PreTrainedTokenizerFast`: it is saved, loaded, padded and batched as any other tokenizer,
and needs nothing of this package once it has been saved.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .sources import read_source
from .word_splitting import SIGNS, word_splitter

# Stands before each part of a word but its first.
_CONTINUES = "##"


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

    The ids are `eos_token`, `unk_token`, `pad_token`, then the words by falling count; words of equal count are in the
    order of their code points, so that the same text always gives the same ids. The three special tokens are also
    recognised where they are written in the text (`<unk>` in the Penn Treebank files). The tokenizer never adds
    `eos_token` by itself: whoever builds the training stream or parses a sentence does.

    Offsets refer to the text as it was given, before normalisation. The one limit is `digits_to_n`: a normalizer gives
    an `N` that stands for several characters the place of the last of them
    (`onlstm_hf.text.word_alignment.word_offsets` gives that of the whole number).

    Args:
        source: A text file, a list of text files (both read as a stream), an iterable of strings, or a dataset of the
            `datasets` library, whose `text_column` is read. Strings of a list or tuple are file names where the first
            of them is an existing file, or all of them end as names of text files do (`.txt`, `.tokens`, ...).
        vocabulary: In place of `source`, the words in the order of their ids, or a mapping from words to ids
            0, 1, 2, ... It is kept as it is; special tokens that it lacks are added at its end.
        vocab_size: The largest number of ids, special tokens included. Unlimited by default.
        min_count: Words seen fewer times are left out.
        lowercase: Lower-case the text. With `digits_to_n`, the number symbol `N` written in a text is kept.
        digits_to_n: Write `N` for each word that is a number, as the Penn Treebank language-modelling text does: 61,
            9.8, 1,000, 1/2, 1986-87 and 3:15, but not 1990s or 30-year. Also as there, `%` is written `N`: "5 %" is
            "N N".
        drop_punctuation: Leave out words that have neither a letter nor a digit, as the Penn Treebank text for
            language modelling does; with "treebank" all but the signs `$ & # '` where the vocabulary has them. With
            "whitespace" also marks at either end of a word, and the full stop at the end of a text. In a sentence that
            is given as a list of words they are unknown words.
        split: "whitespace": words are what white space separates. "treebank": splits ordinary English text as the
            Penn Treebank does: punctuation and clitics are taken off (`do n't`, `John 's`), a period stays with an
            abbreviation. Curly apostrophes count as straight ones, a pound sign is `#`, and a slash within a word is
            `\\/`, as there. "characters": each character is a token, the space included.
        text_column: The column of a dataset that holds the text.
        eos_token: Ends a sentence or document; it is also the tokenizer's `bos_token`.
        unk_token: Stands for every word outside the vocabulary.
        pad_token: Pads batches. It may equal `eos_token`, and None leaves it out.
        token_type_ids: Also say of each token whether it is of the first or the second text of a pair, as classifiers
            of pairs need to know.
        padding_side: Where batches are padded: "right", or "left", which Transformers asks for before `generate`. The
            models of this package compute the same on either side.

    Returns:
        The tokenizer. `decode` joins words with single spaces and characters with nothing.

    Raises:
        FileNotFoundError: A file of `source` does not exist.
        ValueError: The text is empty or not UTF-8, or an argument is out of its range.
    """
    if (source is None) == (vocabulary is None):
        raise ValueError("give either a source to take the vocabulary from, or the vocabulary itself")
    special_tokens = _special_tokens(eos_token, unk_token, pad_token, vocab_size, min_count)
    rule = partial(
        word_splitter,
        split,
        lowercase=lowercase,
        digits_to_n=digits_to_n,
        drop_punctuation=drop_punctuation,
        special_tokens=special_tokens,
    )
    backend = rule()
    if split == "characters":
        backend.decoder = decoders.Fuse()

    if vocabulary is not None:
        words = _ordered_words(vocabulary)
        words += [token for token in special_tokens if token not in set(words)]
        if vocab_size is not None and len(words) > vocab_size:
            raise ValueError(f"the vocabulary has {len(words)} words, which is more than vocab_size={vocab_size}")
    else:
        words = special_tokens + _words_by_count(backend, read_source(source, text_column), special_tokens, min_count)
        if len(words) == len(special_tokens):
            raise ValueError(f"the source has no word that occurs {min_count} times or more: is the text empty?")
        words = words[:vocab_size]
    backend.pre_tokenizer = rule(signs=_known_signs(words)).pre_tokenizer
    backend.model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=unk_token)
    backend.add_special_tokens(special_tokens)
    return _wrapped(
        backend,
        eos_token,
        unk_token,
        pad_token,
        padding_side,
        model_input_names=["input_ids", "attention_mask", *(["token_type_ids"] if token_type_ids else [])],
    )


def build_subword_tokenizer(
    source: str | os.PathLike | Iterable[Any],
    *,
    parts: str = "bpe",
    vocab_size: int = 8000,
    min_count: int = 2,
    lowercase: bool = False,
    digits_to_n: bool = False,
    drop_punctuation: bool = False,
    split: str = "whitespace",
    text_column: str = "text",
    eos_token: str = "<eos>",
    unk_token: str = "<unk>",
    pad_token: str | None = "<pad>",
    padding_side: str = "right",
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer of parts of words, so that few words of a language are unknown.

    The words are those of `build_word_tokenizer` with the same arguments, and no part goes beyond one of them: the
    models' trees are over words as before (`onlstm_hf.text.word_alignment`). A part that does not begin its word is
    written with `##` before it. Only a word with a character that the text does not have, or that is too rare to fit,
    has the unknown token. The same text always gives the same ids.

    Args:
        source, lowercase, digits_to_n, drop_punctuation, text_column, eos_token, unk_token, pad_token, padding_side:
            See `build_word_tokenizer`.
        parts: "bpe": byte-pair encoding over characters (Sennrich et al., 2016): parts that often stand together
            become one, until there are `vocab_size`. "characters": each character of a word is a part.
        vocab_size: The largest number of ids, special tokens included. Single characters come first, by falling count;
            one that also begins words has two ids.
        min_count: Parts that stand together fewer times do not become one.
        split: "whitespace" or "treebank".

    Returns:
        The tokenizer. `decode` joins the parts of words.

    Raises:
        FileNotFoundError: A file of `source` does not exist.
        ValueError: The text is empty or not UTF-8, or an argument is out of its range.
    """
    if parts not in ("bpe", "characters"):
        raise ValueError(f"unknown parts {parts!r}; choose 'bpe' or 'characters'")
    if split == "characters":
        raise ValueError("words that are characters have no parts; choose another split, or build_word_tokenizer")
    special_tokens = _special_tokens(eos_token, unk_token, pad_token, vocab_size, min_count)
    rule = partial(
        word_splitter,
        split,
        lowercase=lowercase,
        digits_to_n=digits_to_n,
        drop_punctuation=drop_punctuation,
        special_tokens=special_tokens,
    )
    backend = rule()
    word_counts = _word_counts(backend, _without(special_tokens, read_source(source, text_column)))
    if not word_counts:
        raise ValueError("the source has no word: is the text empty?")
    backend.model = _parts_of_words(word_counts, special_tokens, unk_token, vocab_size, min_count, parts == "bpe")
    backend.pre_tokenizer = rule(signs=_known_signs(backend.get_vocab())).pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix=_CONTINUES, cleanup=False)
    backend.add_special_tokens(special_tokens)
    return _wrapped(backend, eos_token, unk_token, pad_token, padding_side)


def _special_tokens(
    eos_token: str, unk_token: str, pad_token: str | None, vocab_size: int | None, min_count: int
) -> list[str]:
    special_tokens = list(dict.fromkeys(token for token in (eos_token, unk_token, pad_token) if token is not None))
    if eos_token == unk_token or not all(special_tokens):
        raise ValueError(f"the special tokens must be non-empty and eos and unk distinct; got {special_tokens}")
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1, got {min_count}")
    if vocab_size is not None and vocab_size <= len(special_tokens):
        raise ValueError(
            f"vocab_size is {vocab_size}; it must exceed {len(special_tokens)}, the number of special tokens "
            f"({' '.join(special_tokens)}), to leave room for words"
        )
    return special_tokens


def _known_signs(words: Collection[str]) -> list[str]:
    """The signs that a vocabulary has; any other one is punctuation."""
    return [sign for sign in SIGNS if sign in words]


def _wrapped(
    backend: Tokenizer, eos_token: str, unk_token: str, pad_token: str | None, padding_side: str, **options: Any
) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=eos_token,
        eos_token=eos_token,
        unk_token=unk_token,
        pad_token=pad_token,
        clean_up_tokenization_spaces=False,
        padding_side=padding_side,
        **({"model_input_names": ["input_ids", "attention_mask"]} | options),
    )


def _without(special_tokens: Sequence[str], texts: Iterable[str]) -> Iterator[str]:
    """Yields the text between special tokens."""
    special_token = re.compile("|".join(map(re.escape, special_tokens)))
    return (piece for text in texts for piece in special_token.split(text))


def _words_by_count(
    backend: Tokenizer, texts: Iterable[str], special_tokens: Sequence[str], min_count: int
) -> list[str]:
    """Splits texts exactly as `backend` will, and orders the words by falling count, then by code points."""
    trainer = trainers.WordLevelTrainer(vocab_size=sys.maxsize, min_frequency=min_count, show_progress=False)
    backend.train_from_iterator(_without(special_tokens, texts), trainer)
    ids = backend.get_vocab()
    return [word for word in sorted(ids, key=ids.get) if word not in special_tokens]


def _word_counts(splitter: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    counts = Counter()
    for text in texts:
        written = text if splitter.normalizer is None else splitter.normalizer.normalize_str(text)
        counts.update(word for word, _ in splitter.pre_tokenizer.pre_tokenize_str(written))
    return counts


def _parts_of_words(
    word_counts: Mapping[str, int],
    special_tokens: Sequence[str],
    unk_token: str,
    vocab_size: int,
    min_count: int,
    merged: bool,
) -> models.BPE:
    counts = Counter()
    for word, count in word_counts.items():
        for character in _characters(word):
            counts[character] += count
    characters = sorted(counts, key=lambda character: (-counts[character], character))
    characters = characters[: vocab_size - len(special_tokens)]
    parts = [*special_tokens, *characters]
    merges = _merges(word_counts, characters, vocab_size - len(parts), min_count) if merged else []
    parts = dict.fromkeys(parts + [first + second.removeprefix(_CONTINUES) for first, second in merges])
    return models.BPE(
        {part: index for index, part in enumerate(parts)},
        merges,
        unk_token=unk_token,
        continuing_subword_prefix=_CONTINUES,
    )


def _merges(
    word_counts: Mapping[str, int], characters: Sequence[str], num_parts: int, min_count: int
) -> list[tuple[str, str]]:
    """The pairs of parts that become one, in order, until there are `num_parts` new ones.

    The trainer breaks ties by ids, and gives ids to characters in no fixed order unless they are special tokens. It
    also has each character as the first of a word, whether there is such a word or not.
    """
    known = set(characters)
    words = [word for word in word_counts if known.issuperset(_characters(word))]
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
    """The parts of a word of one character each."""
    return [word[0], *(_CONTINUES + character for character in word[1:])]


def _ordered_words(vocabulary: Sequence[str] | Mapping[str, int]) -> list[str]:
    if isinstance(vocabulary, Mapping):
        words = sorted(vocabulary, key=vocabulary.get)
        if [vocabulary[word] for word in words] != list(range(len(words))):
            raise ValueError(f"the ids of a vocabulary of {len(words)} words must be 0 to {len(words) - 1}, each once")
    else:
        words = list(vocabulary)
        if len(set(words)) < len(words):
            twice = next(word for index, word in enumerate(words) if word in words[:index])
            raise ValueError(f"the vocabulary has the word {twice!r} more than once")
    return words
