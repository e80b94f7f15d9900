"""Splitting of texts into sentences."""

import re
from collections.abc import Callable, Iterable

# A language with optional script and region: "de", "zh-Hant", "pt-BR", "es-419".
LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?")

# A larger fraction of texts with several sentences means that the texts are not split. In treebanks up to 5 % of the
# lines look like several sentences, mostly because of abbreviations.
MAX_SEVERAL = 0.1


def sentence_splitter(language: str = "en") -> Callable[[str], list[tuple[int, int]]]:
    """Returns a function from a text to the `(start, end)` of its sentences, by the rules of the library sentencex.

    A sentence ends at the end of its line at the latest, and has no white space at either end.

    Args:
        language: a code such as `"en"`. The fallback for a language without rules is a related language, or English.

    Raises:
        ImportError: if sentencex is not installed.
        ValueError: if the language is no code, such as "German"; sentencex would silently use English.
    """
    if not LANGUAGE_CODE.fullmatch(language):
        raise ValueError(f'language must be a code such as "en" or "de", not {language!r}')
    try:
        from sentencex import get_sentence_boundaries
    except ImportError as error:
        raise ImportError("splitting texts into sentences needs sentencex: pip install sentencex") from error

    def split(text: str) -> list[tuple[int, int]]:
        offsets, line_start = [], 0
        for line in text.split("\n"):
            for boundary in get_sentence_boundaries(language, line) if line.strip() else ():
                sentence = line[boundary["start_index"] : boundary["end_index"]]
                start = line_start + boundary["start_index"] + len(sentence) - len(sentence.lstrip())
                if sentence.strip():
                    offsets.append((start, start + len(sentence.strip())))
            line_start += len(line) + 1
        return offsets

    return split


def count_several(texts: Iterable[str]) -> int:
    """Counts the texts with several sentences, by the rules of English."""
    split = sentence_splitter()
    return sum(len(split(text)) > 1 for text in texts)
