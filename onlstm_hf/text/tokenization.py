"""Word-level and character-level tokenizers, built from text: `build_word_tokenizer`.

The result is an ordinary `PreTrainedTokenizerFast`: it is saved, loaded, padded and batched as any other tokenizer,
and needs nothing of this package once it has been saved.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ..utils.files import refuse_nul

_BLOCK_BYTES = 1 << 20

# A number as a whole word. These are the forms that the Penn Treebank language-modelling text writes as N (61, 9.8,
# 1,000, 1\/2, 1986-87, 3:15); a word with anything else in it (1990s, 30-year, 13th) keeps its digits there.
_NUMBER = r"\d+(?:(?:\\?/|[-.,:])\d+)*"

# Penn Treebank word splitting in one pattern, whose matches are the words. A period stays with an abbreviation and is
# a word of its own elsewhere, so that a text of several sentences needs no splitting beforehand.
_LETTER_OR_DIGIT = r"[\p{L}\p{M}\p{N}]"
_JOINER = r"(?:\\?/|\.?-|[.&_@+]|(?<=\d)[,:](?=\d))"
_CLITIC = r"['’](?:s|m|d|ll|re|ve)\b"
_ABBREVIATIONS = (
    "adm ariz assn aug ave blvd bros calif co col colo conn corp dec dept dr etc feb fla gen gov inc jan jr ky lt ltd "
    "md messrs mich minn mr mrs ms nev nov oct ph prof pty rep rev sen sept sgt sr st tenn vs wis"
).replace(" ", "|")
_TREEBANK_WORD = "(?i)" + "|".join(
    (
        rf"(?:(?![in]\.(?!\p{{L}}))(?:\p{{L}}\.)+|(?:{_ABBREVIATIONS})\.)(?!-?{_LETTER_OR_DIGIT})",  # J. a.m. Corp.
        r"can(?=not\b)|(?:gon|wan)(?=na\b)|got(?=ta\b)",
        r"n['’]t\b",
        _CLITIC,
        r"['’]\d+s?\b",  # '80s
        rf"(?:(?!n['’]t\b){_LETTER_OR_DIGIT}"
        rf"|(?<={_LETTER_OR_DIGIT})(?:{_JOINER}|(?!{_CLITIC})['’])(?={_LETTER_OR_DIGIT}))+",
        r"\.{2,}|-{2,}|``|''|-[lr][rcs]b-",
        r"(?=\S)\X",  # any other visible symbol; \X keeps the code points of an emoji together
    )
)

_PRE_TOKENIZERS = {
    "whitespace": pre_tokenizers.WhitespaceSplit(),
    "treebank": pre_tokenizers.Split(Regex(_TREEBANK_WORD), behavior="removed", invert=True),
    "characters": pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated"),
}
# Works on the words that another one has split a text into.
_WITHOUT_PUNCTUATION = pre_tokenizers.Split(Regex(r"^[^\p{L}\p{M}\p{N}]+$"), behavior="removed")

# What `digits_to_n` replaces: (pattern, replacement) pairs. The percent sign is an N too in the Penn Treebank text.
_NUMBER_RULES = {
    "whitespace": [(rf"(?<!\S)(?:\.?{_NUMBER}\.?|%)(?!\S)", "N")],
    "treebank": [
        (
            rf"(?<!{_LETTER_OR_DIGIT}|['’])(?<!{_LETTER_OR_DIGIT}[-.,:&/_@+]){_NUMBER}"
            rf"(?!(?:{_JOINER}|(?!{_CLITIC})['’])?{_LETTER_OR_DIGIT})",
            "N",
        ),
        ("%", " N "),
    ],
}
_NUMBER_RULES["characters"] = _NUMBER_RULES["whitespace"]


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

    Offsets refer to the text as it was given, before normalisation. The one limit is `digits_to_n`: the offsets of an
    `N` that stands for several characters are those of the number's last character
    (`onlstm_hf.text.word_alignment.encode_sentence` gives the whole number).

    Args:
        source: A text file, a list of text files (both read as a stream), an iterable of strings, or a dataset of the
            `datasets` library, whose `text_column` is read. Strings of a list or tuple are file names where the first
            of them is an existing file or looks like a file name (no white space, and a suffix or a folder).
        vocabulary: In place of `source`, the words in the order of their ids, or a mapping from words to ids
            0, 1, 2, ... It is kept as it is; special tokens that it lacks are added at its end.
        vocab_size: The largest number of ids, special tokens included. Unlimited by default.
        min_count: Words seen fewer times are left out.
        lowercase: Lower-case the text. With `digits_to_n`, the number symbol `N` written in a text is kept.
        digits_to_n: Write `N` for each word that is a number, as the Penn Treebank language-modelling text does: 61,
            9.8, 1,000, 1/2, 1986-87 and 3:15, but not 1990s or 30-year. Also as there, `%` is written `N`: "5 %" is
            "N N".
        drop_punctuation: Leave out words that have neither a letter nor a digit, as the Penn Treebank text for
            language modelling does. In a sentence that is given as a list of words they are unknown words.
        split: "whitespace": words are what white space separates. "treebank": also separates punctuation and the
            clitics of English (`do n't`, `John 's`), as the Penn Treebank does. "characters": each character is a
            token, the space included.
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
    if split not in _PRE_TOKENIZERS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(map(repr, _PRE_TOKENIZERS))}")
    if (source is None) == (vocabulary is None):
        raise ValueError("give either a source to take the vocabulary from, or the vocabulary itself")
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

    backend = Tokenizer(models.WordLevel(unk_token=unk_token))
    backend.pre_tokenizer = _PRE_TOKENIZERS[split]
    if drop_punctuation:
        backend.pre_tokenizer = pre_tokenizers.Sequence([_PRE_TOKENIZERS[split], _WITHOUT_PUNCTUATION])
    backend.normalizer = _normalizer(lowercase, digits_to_n, split)
    if split == "characters":
        backend.decoder = decoders.Fuse()

    if vocabulary is not None:
        words = _ordered_words(vocabulary)
        words += [token for token in special_tokens if token not in set(words)]
        if vocab_size is not None and len(words) > vocab_size:
            raise ValueError(f"the vocabulary has {len(words)} words, which is more than vocab_size={vocab_size}")
    else:
        words = special_tokens + _words_by_count(backend, _texts(source, text_column), special_tokens, min_count)
        if len(words) == len(special_tokens):
            raise ValueError(f"the source has no word that occurs {min_count} times or more: is the text empty?")
        words = words[:vocab_size]
    backend.model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=unk_token)
    backend.add_special_tokens(special_tokens)

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=eos_token,
        eos_token=eos_token,
        unk_token=unk_token,
        pad_token=pad_token,
        model_input_names=["input_ids", "attention_mask", *(["token_type_ids"] if token_type_ids else [])],
        clean_up_tokenization_spaces=False,
        padding_side=padding_side,
    )


def _normalizer(lowercase: bool, digits_to_n: bool, split: str) -> normalizers.Normalizer | None:
    steps = []
    if digits_to_n and lowercase:
        # An N that stands in the text already is a number too: as a digit it survives lower-casing.
        steps.append(normalizers.Replace(Regex(r"(?<!\S)N(?!\S)"), "0"))
    if lowercase:
        steps.append(normalizers.Lowercase())
    if digits_to_n:
        steps += [normalizers.Replace(Regex(pattern), replacement) for pattern, replacement in _NUMBER_RULES[split]]
    return normalizers.Sequence(steps) if steps else None


def _words_by_count(
    backend: Tokenizer, texts: Iterable[str], special_tokens: Sequence[str], min_count: int
) -> list[str]:
    """Splits texts exactly as `backend` will, and orders the words by falling count, then by code points."""
    special_token = re.compile("|".join(map(re.escape, special_tokens)))
    pieces = (piece for text in texts for piece in special_token.split(text))
    trainer = trainers.WordLevelTrainer(vocab_size=sys.maxsize, min_frequency=min_count, show_progress=False)
    backend.train_from_iterator(pieces, trainer)
    ids = backend.get_vocab()
    return [word for word in sorted(ids, key=ids.get) if word not in special_tokens]


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


def _texts(source: str | os.PathLike | Iterable[Any], text_column: str) -> Iterator[str]:
    if isinstance(source, Mapping):
        raise ValueError(f"the source has several splits ({', '.join(map(str, source))}); choose one of them")
    if isinstance(source, (str, os.PathLike)):
        source = [Path(source)]
    elif isinstance(source, (list, tuple)) and source and _is_file_name(source[0]):
        source = [Path(path) for path in source]

    for item in source:
        if isinstance(item, os.PathLike):
            yield from _read_lines(Path(item))
        elif isinstance(item, str):
            yield item
        elif isinstance(item, Mapping) and isinstance(item.get(text_column), str):
            yield item[text_column]
        elif isinstance(item, Mapping):
            columns = ", ".join(f"{name} ({type(value).__name__})" for name, value in item.items())
            raise ValueError(f"the dataset has no text in the column {text_column!r}; its columns are {columns}")
        else:
            raise ValueError(f"the source must give strings, paths or dataset rows, not {type(item).__name__}")


def _is_file_name(item: Any) -> bool:
    if not isinstance(item, str):
        return False
    looks_like_one = re.fullmatch(r"\S*[/\\]\S+|\S*\w\.\w{1,5}", item) is not None
    return looks_like_one or os.path.isfile(item)


def _read_lines(path: Path) -> Iterator[str]:
    """Yields a file's lines; a line that is longer than a block comes in pieces, cut after a space."""
    if not path.is_file():
        raise FileNotFoundError(f"no text file at {path}; give text itself as a list of strings")
    position, block = 0, b""
    with path.open("rb") as file:
        while new := file.read(_BLOCK_BYTES):
            block += new
            end = max(block.rfind(b"\n"), block.rfind(b" ")) + 1
            yield from _decode(path, block[:end], position)
            position, block = position + end, block[end:]
    yield from _decode(path, block, position)


def _decode(path: Path, block: bytes, position: int) -> Iterator[str]:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text: byte {block[error.start]:#04x} at position {position + error.start}; "
            "convert the file to UTF-8"
        ) from error
    refuse_nul(text, str(path))
    return iter(text.replace("\r\n", "\n").split("\n"))
