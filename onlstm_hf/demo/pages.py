"""The page as HTML, and the files to download. Whatever a user typed stands in them as text, never as markup."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..trees.drawing import compared_trees_to_svg, words_to_svg
from ..trees.induced_tree import InducedTree
from .models import Choices, DemoModels
from .sentence_analysis import SentenceAnalysis, SentenceReading

EXAMPLES = (
    "the company said it expects to report a loss",
    "( (S (NP (DT The) (JJ old) (NN man)) (VP (VBD sold) (NP (DT the) (NN house)) (PP (IN in) (NP (NN spring))))) )",
    "the chairman who met the investors resigned\nshares of the company fell because analysts expect a loss",
)
EXAMPLE_PAIR = {
    "grammatical": "the executives who met the lawyer are pleased",
    "ungrammatical": "the executives who met the lawyer is pleased",
}
BRANCHING_BIASES = {"right": "right: the papers' rule", "none": "none", "ranges": "ranges: a PRPN's gates"}
SPELLINGS = {"1": "as the Penn Treebank", "0": "as typed"}
FILES = {"SVG": "figure.svg", "PNG": "figure.png", "brackets": "tree.txt"}

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Section(NamedTuple):
    """What the page shows of one sentence.

    Attributes:
        title: its heading.
        figure: the SVG document.
        reading: the sentence as the model read it.
        brackets: the induced tree; `None` where there is none.
        gold: the comparison with the gold tree that was given.
        downloads: the addresses of its files, by their kinds.
    """

    title: str
    figure: Markup
    reading: SentenceReading
    brackets: str | None = None
    gold: dict[str, Any] | None = None
    downloads: Mapping[str, str] = {}


def page_html(models: DemoModels, fields: Mapping[str, str]) -> tuple[str, bool]:
    """The page that an address with these fields shows, and whether what they ask for could be shown.

    Where the address has a sentence of a minimal pair, the page compares the pair; otherwise it parses the text.
    """
    compares = not fields.keys().isdisjoint(EXAMPLE_PAIR)
    texts = {name: fields.get(name, "") for name in EXAMPLE_PAIR} if compares else {"text": EXAMPLES[0], **fields}
    message, result = None, {}
    try:
        choices = models.choices(fields)
        result = _compare(models, texts, choices) if compares else _parse(models, texts["text"], choices)
    except ValueError as error:
        message = str(error)
    layers = sorted({layer for model in models.checkpoints for layer in models.layers(model)})
    html = _TEMPLATES.get_template("page.html").render(
        view="compare" if compares else "parse",
        fields={**fields, **texts},
        examples=EXAMPLES,
        example_pair=EXAMPLE_PAIR,
        options={
            "model": {name: name for name in models.checkpoints},
            "layer": {"": "the model's own", **{str(layer): f"layer {layer}" for layer in layers}},
            "bias": BRANCHING_BIASES,
            "treebank": SPELLINGS,
        },
        message=message,
        **{"link": None, "pair": None, "sections": [], **result},
    )
    return html, message is None


def file_content(models: DemoModels, name: str, fields: Mapping[str, str]) -> str:
    """The content of a file to download; of a picture in PNG it is the same in SVG.

    Raises:
        ValueError: if the text is not exactly one sentence that can be read, or has no tree where one is asked for.
    """
    ((_, analysis), *others) = models.analyze(fields.get("text", ""), models.choices(fields))
    if others:
        raise ValueError("A file has one sentence.")
    if name != "tree.txt":
        return analysis.to_svg()
    if analysis.tree is None:
        raise ValueError("This model induces no trees.")
    return f"{analysis.tree.to_bracket()}\n"


def content_security_policy(frame_ancestors: str) -> str:
    """What the page may load: its own files only, and no style in it but the one that all figures have.

    Args:
        frame_ancestors: the pages that may show it in a frame.
    """
    style = ElementTree.fromstring(words_to_svg([], [])).findtext("{*}style")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        f"style-src 'self' 'sha256-{digest}'; base-uri 'none'; form-action 'self'; frame-ancestors {frame_ancestors}"
    )


def _parse(models: DemoModels, text: str, choices: Choices) -> dict[str, Any]:
    sections = []
    for part, analysis in models.analyze(text, choices):
        files = {kind: file for kind, file in FILES.items() if analysis.tree or file != "tree.txt"}
        section = Section(
            title=" ".join(analysis.reading.words),
            figure=Markup(analysis.to_svg()),
            reading=analysis.reading,
            brackets=None if analysis.tree is None else analysis.tree.to_bracket(),
            gold=_gold_comparison(analysis),
            downloads={kind: choices.link(f"download/{file}", text=part) for kind, file in files.items()},
        )
        sections.append(section)
    return {"link": choices.link("./", text=text), "sections": sections}


def _compare(models: DemoModels, sentences: Mapping[str, str], choices: Choices) -> dict[str, Any]:
    pair = models.compare(**sentences, choices=choices)
    sections = [
        Section(f"{kind}: {' '.join(reading.words)}", Markup(words_to_svg(reading.words, [reading.measure])), reading)
        for kind, reading in (("Grammatical", pair.grammatical), ("Ungrammatical", pair.ungrammatical))
    ]
    return {"link": choices.link("./", **sentences), "pair": pair, "sections": sections}


def _gold_comparison(analysis: SentenceAnalysis) -> dict[str, Any] | None:
    """The gold tree over the induced one, the scores against it, and the constituents that agree and disagree."""
    scores = analysis.scores()
    if scores is None:
        return None
    words, tree = analysis.reading.words, InducedTree.from_spans(analysis.gold.words, analysis.gold.spans())
    whole_sentence = {(0, len(words))}
    induced, gold = set(analysis.tree.spans()) - whole_sentence, set(tree.spans()) - whole_sentence

    def phrases(spans: Iterable[tuple[int, int]]) -> list[str]:
        return [" ".join(words[start:end]) for start, end in sorted(spans)]

    return {
        "figure": Markup(compared_trees_to_svg(tree, {"induced": analysis.tree})),
        "scores": {
            "F1": scores.sentence_f1,
            "precision": scores.sentence_precision,
            "recall": scores.sentence_recall,
        },
        "constituents": {
            "In both": phrases(induced & gold),
            "Only induced": phrases(induced - gold),
            "Only gold": phrases(gold - induced),
        },
    }
