"""Splitting of texts into sentences."""

import re
from collections.abc import Callable, Iterable

# A language with optional script and region: "de", "zh-Hant", "pt-BR", "es-419".
LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?")

# A larger fraction of texts with several sentences means that the texts are not split. In treebanks up to 5 % of the
# lines look like several sentences, mostly because of abbreviations.
MAX_SEVERAL = 0.1

# Lines with text, and text without surrounding white space.
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_VISIBLE = re.compile(r"(?s)\S(?:.*\S)?")


def sentence_splitter(language: str = "en") -> Callable[[str], list[tuple[int, int]]]:
    """Returns a function from a text to the `(start, end)` of its sentences, by the rules of the library sentencex.

    A sentence ends at the end of its line at the latest, and has no white space at either end.

    Args:
        language: a code such as `"en"`. The fallback for a language without rules is a related language, or English.

    Raises:
        ValueError: if the language is no code, such as "German"; sentencex would silently use English.
    """
    from sentencex import get_sentence_boundaries

    if not LANGUAGE_CODE.fullmatch(language):
        raise ValueError(f'language must be a code such as "en" or "de", not {language!r}')

    def split(text: str) -> list[tuple[int, int]]:
        offsets = []
        for line in _LINE.finditer(text):
            for boundary in get_sentence_boundaries(language, line.group()):
                start, end = (line.start() + boundary[f"{side}_index"] for side in ("start", "end"))
                if sentence := _VISIBLE.search(text, start, end):
                    offsets.append(sentence.span())
        return offsets

    return split


def count_several(texts: Iterable[str]) -> int:
    """Counts the texts with several sentences, by the rules of English."""
    split = sentence_splitter()
    return sum(len(split(text)) > 1 for text in texts)
