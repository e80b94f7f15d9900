"""Texts of several sentences."""

import re
from collections.abc import Callable, Iterable

# A language, and perhaps its script and its region: "de", "zh-Hant", "pt-BR", "es-419".
LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?")

# Share of texts with several sentences above which they count as not split. Lines of a treebank look so up to one in
# twenty times, mostly for an abbreviation.
MAX_SEVERAL = 0.1


def sentence_splitter(language: str = "en") -> Callable[[str], list[tuple[int, int]]]:
    """A function from a text to the `(start, end)` of each of its sentences, by the rules of the library sentencex.

    A sentence does not go beyond a line, and begins and ends with something visible.

    Args:
        language: a code such as `"en"`. A language without rules of its own has those of a related one, or of English.

    Raises:
        ImportError: if sentencex is not installed.
        ValueError: if the language is no code, such as "German", for which sentencex silently takes English.
    """
    if not LANGUAGE_CODE.fullmatch(language):
        raise ValueError(f'language must be a code such as "en" or "de", not {language!r}')
    try:
        from sentencex import get_sentence_boundaries
    except ImportError as error:
        raise ImportError("splitting texts into sentences needs sentencex: pip install sentencex") from error

    def split(text: str) -> list[tuple[int, int]]:
        places, line_start = [], 0
        for line in text.split("\n"):
            for found in get_sentence_boundaries(language, line) if line.strip() else ():
                sentence = line[found["start_index"] : found["end_index"]]
                start = line_start + found["start_index"] + len(sentence) - len(sentence.lstrip())
                if sentence.strip():
                    places.append((start, start + len(sentence.strip())))
            line_start += len(line) + 1
        return places

    return split


def count_several(texts: Iterable[str]) -> int:
    """Returns how many of the texts have several sentences, by the rules of English."""
    split = sentence_splitter()
    return sum(len(split(text)) > 1 for text in texts)
