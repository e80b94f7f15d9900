"""Descriptions of training texts and gold trees for model cards.

`training/texts/` has such descriptions as YAML; the results of a release carry theirs.
"""

from dataclasses import dataclass, fields

PENN_TREEBANK = "ptb-text-only/ptb_text_only"
WSJ_SAMPLE = "wsj_sample"


@dataclass(frozen=True)
class TextDescription:
    """The words of a model card that depend on the training text.

    Attributes:
        name: as in "trained on ...".
        title: its name as a data set.
        short: its name in a table.
        dataset: its name on the Hub, or one without a slash for what is not there.
        language: its code, such as `en`.
        spelling: how its words are written, as in "Texts: ...".
        limits: what a model knows of the language, in whole sentences, where `{vocab_size}` stands for its words.
        example: a sentence in this spelling, of three words or more.
        train: how a command names the training text.
        validation: how it names the validation text.
        test: how it names the test text, if there is one.
        license: of the weights, as the Hub names it.
    """

    name: str
    title: str
    short: str
    dataset: str
    language: str
    spelling: str
    limits: str
    example: str
    train: str
    validation: str
    test: str | None = None
    license: str = "apache-2.0"


@dataclass(frozen=True)
class TreebankDescription:
    """The words of a model card that depend on the gold trees.

    Attributes:
        name: what they are, as in "the 3,914 ...".
        title: their name as a data set.
        short: their name in a table.
        dataset: their name on the Hub, or one without a slash for what is not there.
        file: how a command names them.
        overlap: what a reader must know about them and the training text, in whole sentences.
        remark: the same in a few words.
    """

    name: str
    title: str
    short: str
    dataset: str
    file: str
    overlap: str | None = None
    remark: str | None = None


def read_descriptions(content: dict) -> tuple[TextDescription, TreebankDescription | None]:
    """The descriptions of a text and, where there are any, of gold trees.

    Args:
        content: has their fields under `text` and `treebank`.

    Raises:
        ValueError: if a field is missing or unknown.
    """
    descriptions = {}
    for name, kind in {"text": TextDescription, "treebank": TreebankDescription}.items():
        if name == "treebank" and content.get(name) is None:
            continue
        try:
            descriptions[name] = kind(**content[name])
        except (KeyError, TypeError) as error:
            known = ", ".join(field.name for field in fields(kind))
            raise ValueError(f"the description of the {name} must have the fields {known}: {error}") from error
    return descriptions["text"], descriptions.get("treebank")
