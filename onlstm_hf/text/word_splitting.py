"""What the words of a text are, and how they are written: the first half of every tokenizer that is built here."""

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

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


def word_splitter(
    split: str = "whitespace", *, lowercase: bool = False, digits_to_n: bool = False, drop_punctuation: bool = False
) -> Tokenizer:
    """A tokenizer without a vocabulary, which splits a text into words and writes them as asked for.

    Args:
        split, lowercase, digits_to_n, drop_punctuation: see `build_word_tokenizer`.

    Raises:
        ValueError: if there is no such `split`.
    """
    if split not in _PRE_TOKENIZERS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(map(repr, _PRE_TOKENIZERS))}")
    splitter = Tokenizer(models.WordLevel())
    splitter.pre_tokenizer = _PRE_TOKENIZERS[split]
    if drop_punctuation:
        splitter.pre_tokenizer = pre_tokenizers.Sequence([_PRE_TOKENIZERS[split], _WITHOUT_PUNCTUATION])
    splitter.normalizer = _normalizer(lowercase, digits_to_n, split)
    return splitter


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
