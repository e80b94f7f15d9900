"""Descriptions of training texts and gold trees for model cards.

`training/texts/` contains them as YAML files; the results of a release contain a copy.
"""

from types import SimpleNamespace

PENN_TREEBANK = "ptb-text-only/ptb_text_only"
WSJ_SAMPLE = "wsj_sample"

# Fields of both: `name` as in "trained on ..." or "the 3,914 ...", `title` as a dataset, `short` in a table, and
# `dataset`, a name on the Hub or, for one that is not on the Hub, a name without a slash.
_COMMON = ("name", "title", "short", "dataset")
# Text: the code of its `language`; `spelling` of its words, as in "Texts: ..."; `limits` of the model in whole
# sentences, with `{vocab_size}`; an `example` sentence of three words or more; the file names in a command (`train`,
# `validation`, `test`); the `license` of the weights.
# Gold trees: the `file` in a command; `overlap` with the training text in whole sentences, `remark` in a few words.
_REQUIRED = {
    "text": (*_COMMON, "language", "spelling", "limits", "example", "train", "validation"),
    "treebank": (*_COMMON, "file"),
}
_OPTIONAL = {"text": {"test": None, "license": "apache-2.0"}, "treebank": {"overlap": None, "remark": None}}


def read_descriptions(content: dict) -> tuple[SimpleNamespace, SimpleNamespace | None]:
    """Returns the descriptions under `text` and, unless there is none, under `treebank`; checks their fields."""
    return _read(content, "text"), None if content.get("treebank") is None else _read(content, "treebank")


def _read(content: dict, part: str) -> SimpleNamespace:
    description, fields = content.get(part) or {}, [*_REQUIRED[part], *_OPTIONAL[part]]
    wrong = [f"{name} is missing" for name in _REQUIRED[part] if name not in description]
    wrong += [f"{name} is unknown" for name in description if name not in fields]
    if wrong:
        raise ValueError(f"the description of the {part} must have the fields {', '.join(fields)}: {', '.join(wrong)}")
    return SimpleNamespace(**_OPTIONAL[part] | description)
