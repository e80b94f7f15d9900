"""Rules that split a text into words and normalise them, for all tokenizers of this package.

The rules are components of the library tokenizers, so a saved `tokenizer.json` contains them. Their regular
expressions are also valid in JavaScript (flag `u`), so that the browser can use the same file. They have no inline
flags, no `\\b`, `\\d` and `\\X`, and no possessive or atomic groups.
"""

from collections.abc import Collection

from tokenizers import Regex, normalizers, pre_tokenizers

# A number as a whole word, in the forms that the Penn Treebank text for language modelling replaces by N: 61, 9.8,
# 1,000, 1\/2, 1986-87, 3:15. Other words with digits (1990s, 30-year, 13th) are unchanged there.
_NUMBER = r"\p{Nd}+(?:(?:\\?/|[-.,:])\p{Nd}+)*"


def _any_case(words: str) -> str:
    """Returns a case-insensitive pattern: `mr dr` gives `[mM][rR]|[dD][rR]`."""
    return "|".join("".join(f"[{letter}{letter.upper()}]" for letter in word) for word in words.split())


# Penn Treebank word splitting in one pattern, whose matches are the words. A period belongs to an abbreviation, and is
# a mark elsewhere. So a text of several sentences need not be split first.
_LETTER_OR_DIGIT = r"[\p{L}\p{M}\p{N}]"
_NO_FURTHER = rf"(?!{_LETTER_OR_DIGIT})"
_JOINER = r"(?:\\?/|\.?-|[.&_@+]|(?<=\p{Nd})[,:](?=\p{Nd}))"
_NOT = rf"[nN]'[tT]{_NO_FURTHER}"
_CLITIC = rf"'(?:{_any_case('s m d ll re ve')}){_NO_FURTHER}"
_ABBREVIATIONS = _any_case(
    "adm ala approx ariz assn atty aug ave bldg blvd brig bros calif capt cie cmdr co col colo conn corp cos cpl "
    "dec dept dr drs esq etc feb fla ga gen gov inc ind jan jr kan ky lieut lt ltd maj md messrs mich minn mlle "
    "mme mo mr mrs ms msgr neb nev nov oct okla pa pfc ph pp prof pty pvt rep rev sen sens sept sgt sr st supt "
    "tenn univ va viz vol vols vs wis"
)
# Abbreviations that are also words: at the end of a text, their period is a full stop.
_AMBIGUOUS = _any_case("del ill mass mt ore wash")
# Words that are abbreviations only before a number.
_BEFORE_NUMBERS = _any_case("apr ch eq ext fig figs jul jun mar no nos tel")
_AFTER_ABBREVIATION = "|".join(rf"^{word}\.|[\s(]{word}\." for word in _BEFORE_NUMBERS.split("|"))  # No.1
_ENDS_TEXT = r"[^\p{L}\p{N} ]*$"  # a space may precede a special token
_IN_URL = r"""[^\s()<>\[\]"“”—]"""
_URL = rf"(?:[\p{{L}}\p{{N}}+.-]+://|[wW]{{3}}\.)(?:{_IN_URL}|\({_IN_URL}*\))*(?:[\p{{L}}\p{{N}}/]|\({_IN_URL}*\))"
_WORDS = (
    _URL,
    rf"(?:\p{{L}}+-)*(?:\p{{L}}{{1,2}}\.){{2,}}(?!-?{_LETTER_OR_DIGIT})",  # U.S. a.m. non-U.S. Ph.D.
    rf"(?!N\.)(?![iI]\.{_ENDS_TEXT})\p{{L}}\.(?!-?{_LETTER_OR_DIGIT})",  # J. Smith, but neither "so do I." nor "N."
    rf"(?:{_ABBREVIATIONS})\.(?!-?{_LETTER_OR_DIGIT})",
    rf"(?:{_AMBIGUOUS})\.(?!-?{_LETTER_OR_DIGIT}|{_ENDS_TEXT})",
    rf"(?:{_BEFORE_NUMBERS})\.(?=\s*(?:\p{{Nd}}|N(?!\p{{L}})| $))",  # No. 1
    rf"[cC][aA][nN](?=[nN][oO][tT]{_NO_FURTHER})",
    rf"(?:{_any_case('gon wan')})(?=[nN][aA]{_NO_FURTHER})|[gG][oO][tT](?=[tT][aA]{_NO_FURTHER})",
    _NOT,
    _CLITIC,
    rf"'\p{{Nd}}+s{_NO_FURTHER}",  # '80s
    r"(?!N\$)\p{L}{1,2}\$",  # US$ HK$, but not the N of 20$
    rf"(?:(?!{_NOT}){_LETTER_OR_DIGIT}"
    rf"|(?<={_LETTER_OR_DIGIT})(?:{_JOINER}|(?!{_CLITIC})')(?={_LETTER_OR_DIGIT}))+",
)
# Signs that are words in the Penn Treebank text, with their contexts: an apostrophe after plurals, # for pounds.
SIGNS = {
    "'": rf"(?<=[sxzSXZ])'{_NO_FURTHER}|(?<!\S)'(?!\S)",
    "$": r"\$",
    "&": "&",
    "#": r"#(?=\s*(?:\p{Nd}|N(?!\p{L}))|\s|$)",
    r"\*": r"(?:\\\*)+",
}
_MARKS = (
    r"\.{2,}|-{2,}|``|''|-[lLrR][rRcCsS][bB]-",
    r"[🇦-🇿]{2}|\S(?:[\p{M}🏻-🏿]|‍\S)*",  # any other visible symbol; an emoji is one symbol
)
# Marks at the ends of words that white space separates. A period is a mark after another mark, and at the end of a
# text except after a single letter or in abbreviations such as EE.UU.
# A straight single quote is no mark if it may be an apostrophe ('t, 's, '98, d', Hans').
_OPENING = r'[¿¡(\[{«“„‘"（「『《—–]'
_CLOSING = r'[,;:!?)\]}»”’"…，。、；：！？）」』》—–€£]'
_AT_ENDS_OF_WORDS = (
    rf"(?<!\S)(?:{_OPENING}|[$€£](?=\p{{Nd}})|'(?=\p{{L}}{{2}}))+(?=\S)"
    rf"|(?<=\S)(?<!{_CLOSING})"
    rf"(?:{_CLOSING}[.']*|(?<!\.)\.{{2,}}(?!\.)|(?<=\p{{Nd}})\$|(?<=\p{{L}}[^\P{{L}}sxzSXZ])')+(?!\S)"
    rf"|(?<=[^\s.]{{2}})(?<!\.[^\s.]{{2}})\.(?=(?:{_CLOSING}|')*\s*$)"
)
# Typed characters and their normal forms.
_TYPED = [
    # Soft hyphens, zero-width spaces, direction marks, and joiners between Latin letters.
    (r"[\u00AD\u200B\u200E\u200F\u202A-\u202E\u2060\u2066-\u2069\uFEFF]|(?<=[a-zA-Z])[\u200C\u200D](?=[a-zA-Z])", ""),
    (r"[‘’ʼ]|(?<=\p{L})[´`′](?=\p{L})", "'"),
    (r"[‐‑]", "-"),
    (r"(?<=\p{Nd})–(?=\p{Nd})", "-"),
    (r"£", "#"),
    *zip("ﬀﬁﬂﬃﬄµ", ("ff", "fi", "fl", "ffi", "ffl", "μ"), strict=True),  # ligatures of PDF, and the sign of micro
    (rf"(?<={_LETTER_OR_DIGIT})/(?={_LETTER_OR_DIGIT})", r"\/"),
]

SPLITS = ("whitespace", "treebank", "characters")
# Runs after another pre-tokenizer.
_WITHOUT_PUNCTUATION = pre_tokenizers.Split(Regex(r"^[^\p{L}\p{M}\p{N}]+$"), behavior="removed")

# (pattern, replacement) pairs of `digits_to_n`. The Penn Treebank text also replaces the percent sign by N.
_NUMBER_RULES = {
    "whitespace": [(rf"(?<!\S)(?:\.?{_NUMBER}\.?|%)(?!\S)", "N")],
    "treebank": [
        (
            rf"(?=\p{{Nd}})(?:(?<!{_LETTER_OR_DIGIT})(?<!{_LETTER_OR_DIGIT}[-.,:&/_@+'])(?<!{_LETTER_OR_DIGIT}\\/)"
            rf"|(?<={_AFTER_ABBREVIATION})){_NUMBER}(?!(?:{_JOINER}|(?!{_CLITIC})')?{_LETTER_OR_DIGIT})",
            "N",
        ),
        ("%", " N "),
    ],
}
_NUMBER_RULES["characters"] = _NUMBER_RULES["whitespace"]


def word_pre_tokenizer(
    split: str, drop_punctuation: bool, special_tokens: Collection[str], vocabulary: Collection[str] = SIGNS
) -> pre_tokenizers.PreTokenizer:
    """Returns the rule that splits a text into words.

    Args:
        split, drop_punctuation: see `build_word_tokenizer`.
        special_tokens: words that are never split.
        vocabulary: the `SIGNS` in it are words for `"treebank"`, also with `drop_punctuation`; by default all.

    Raises:
        ValueError: for an unknown `split`.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(map(repr, SPLITS))}")
    if split == "treebank":
        signs = [pattern for sign, pattern in SIGNS.items() if sign in vocabulary]
        words = [*map(_literally, special_tokens), *_WORDS, *signs, *(() if drop_punctuation else _MARKS)]
        return pre_tokenizers.Split(Regex("|".join(words)), behavior="removed", invert=True)
    if split == "characters":
        splitter = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    else:
        splitter = pre_tokenizers.WhitespaceSplit()
    return pre_tokenizers.Sequence([splitter, _WITHOUT_PUNCTUATION]) if drop_punctuation else splitter


def _literally(text: str) -> str:
    return "".join(f"\\{character}" if character in r"\^$.*+?()[]{}|/" else character for character in text)


def word_normalizer(
    split: str, lowercase: bool, digits_to_n: bool, drop_punctuation: bool
) -> normalizers.Normalizer | None:
    """Returns the rule that normalises a text before it is split, see `build_word_tokenizer`; `None` for no change."""
    rules = []
    if split == "treebank":
        rules += _TYPED
        if drop_punctuation:
            rules.append((r"-[lLrR][rRcCsS][bB]-", " "))
    elif split == "whitespace" and drop_punctuation:
        rules.append((_AT_ENDS_OF_WORDS, " "))
    if digits_to_n and lowercase:
        # An N in the text is also a number; written as a digit, it survives lower-casing.
        rules.append((r"(?<!\S)N(?!\S)", "0"))
    steps = [normalizers.Replace(Regex(pattern), replacement) for pattern, replacement in rules]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if digits_to_n:
        steps += [normalizers.Replace(Regex(pattern), replacement) for pattern, replacement in _NUMBER_RULES[split]]
    return normalizers.Sequence(steps) if steps else None
