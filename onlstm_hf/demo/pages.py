"""The page as HTML, and the files to download. Whatever a user typed stands in them as text, never as markup."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..trees.drawing import words_to_svg
from ..trees.induced_tree import InducedTree
from ..trees.splits import splits_of
from . import examples
from .exports import NumberTable, pair_table, sentence_table, to_forest, to_qtree, to_square_brackets
from .figures import TreePanel, deciding_column, pair_figure, sentence_figure
from .models import ALL_LAYERS, Choices, DemoModels
from .sentence_analysis import PairColumn, SentenceAnalysis

RULES = {"right": "the papers' rule", "none": "rule without bias", "ranges": "rule of ranges"}
OPTIONS = {
    "bias": {"right": "right: the papers' rule", "none": "none", "ranges": "ranges: a PRPN's gates"},
    "treebank": {"1": "as the Penn Treebank", "0": "as typed"},
}
FILES = {"SVG": "figure.svg", "PNG": "figure.png", "brackets": "tree.txt", "TSV": "table.tsv", "JSON": "table.json"}
LONG = 25  # words, from which on the outline is shown beside the figure

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Result(NamedTuple):
    """A sentence or a minimal pair with all that is shown of it.

    Attributes:
        title: the sentence, or both.
        caption: what made the result: the model, and of a tree the layer and the rule.
        svg: the figure.
        table: the numbers.
        link: its fields as an address, without the path.
        tree: the induced tree, where there is one.
        details: what only its kind has, for the template.
    """

    title: str
    caption: str
    svg: str
    table: NumberTable
    link: str
    tree: InducedTree | None
    details: Mapping[str, Any]

    @property
    def figure(self) -> Markup:
        """The figure, in which all text is escaped."""
        return Markup(self.svg)

    @property
    def downloads(self) -> dict[str, str]:
        """The addresses of its files, by their kinds."""
        return {
            kind: f"download/{file}{self.link}"
            for kind, file in FILES.items()
            if self.tree is not None or file != "tree.txt"
        }

    @property
    def outline(self) -> Markup:
        """The tree as nested lists, a word a line."""
        html = Markup("")
        for word, count in zip(self.tree.words, self.tree.bracket_counts, strict=True):
            html += Markup("<li><ul>") * count + Markup("<li>{}</li>").format(word) + Markup("</ul></li>") * -count
        return html

    @property
    def exports(self) -> dict[str, str]:
        """The tree as other programs read it, by the name of the form."""
        return {
            "Brackets": self.tree.to_bracket(),
            "Square brackets": to_square_brackets(self.tree),
            "LaTeX, qtree": to_qtree(self.tree),
            "LaTeX, forest": to_forest(self.tree),
        }


def page_html(models: DemoModels, fields: Mapping[str, str], origin: str = "") -> tuple[str, bool]:
    """The page that an address with these fields shows, and whether what they ask for could be shown.

    Where the address has a sentence of a minimal pair, the page compares the pair; otherwise it parses the text.

    Args:
        models: what it shows.
        fields: of the address.
        origin: the server's own address, `https://example.org`, which a preview of a link needs.
    """
    texts = _texts(fields)
    message, results, choices = None, [], models.default_choices()
    try:
        choices = models.choices(fields)
        results = _results(models, texts, choices)
    except ValueError as error:
        message = str(error)
    layers = sorted({layer for model in models.checkpoints for layer in models.layers(model)})
    names = {name: name for name in models.checkpoints}
    others = {name: f"tree of {name}" for name in models.checkpoints if models.induces_trees(name)}
    html = _TEMPLATES.get_template("page.html").render(
        view="parse" if "text" in texts else "compare",
        fields={**fields, **texts},
        examples=examples,
        options={
            "model": names,
            "layer": {"": "the model's own", **{str(layer): f"layer {layer}" for layer in layers}},
            **OPTIONS,
            "beside": {"": "nothing", ALL_LAYERS: "trees of all layers", **others},
        },
        message=message,
        results=results,
        long=LONG,
        link=choices.link("./", **texts) if results else None,
        origin=origin,
        address_of=lambda **text: choices.link("./", **text),
    )
    return html, message is None


def file_content(models: DemoModels, name: str, fields: Mapping[str, str]) -> tuple[str, str]:
    """The content of a file to download, and the name to save it by; a picture in PNG has the content of that in SVG.

    Raises:
        ValueError: if the text is not exactly one sentence or pair that can be read, or has no tree where one is
            asked for.
    """
    texts = _texts(fields) if fields.keys() & {"text", *examples.FIRST_PAIR} else {"text": ""}
    result, *others = _results(models, texts, models.choices(fields))
    if others:
        raise ValueError("A file has one sentence.")
    if name == "tree.txt":
        if result.tree is None:
            raise ValueError("This model induces no trees." if "text" in texts else "A pair has no tree.")
        content = f"{result.tree.to_bracket()}\n"
    elif name == "table.tsv":
        content = result.table.to_tsv()
    elif name == "table.json":
        tree = None if result.tree is None else result.tree.to_bracket()
        content = result.table.to_json(sentence=result.title, made_by=result.caption, tree=tree)
    else:
        content = result.svg
    return content, f"{file_stem(result.title)}{Path(name).suffix}"


def file_stem(title: str) -> str:
    """A file name for a sentence: its ASCII letters and digits, and hyphens for all else."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-") or "sentence"


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


def _texts(fields: Mapping[str, str]) -> dict[str, str]:
    """The sentences that an address asks for; the first example if it asks for none."""
    if not fields.keys().isdisjoint(examples.FIRST_PAIR):
        return {name: fields.get(name, "") for name in examples.FIRST_PAIR}
    return {"text": fields.get("text", examples.FIRST_SENTENCE)}


def _results(models: DemoModels, texts: Mapping[str, str], choices: Choices) -> list[Result]:
    if "text" not in texts:
        return [_pair_result(models, texts, choices)]
    return [
        _sentence_result(analysis, models.trees_beside(analysis, choices), choices, choices.link("", text=part))
        for part, analysis in models.analyze(texts["text"], choices)
    ]


def _sentence_result(
    analysis: SentenceAnalysis, beside: Mapping[str, InducedTree], choices: Choices, link: str
) -> Result:
    reading, tree, gold = analysis.reading, analysis.tree, analysis.gold
    caption = choices.model if tree is None else f"{choices.maker}, {RULES[choices.bias]}"
    panels, splits = [], {}
    if tree is not None:
        splits = splits_of(tree, choices.bias)
        panels.append(TreePanel(caption, tree, gold, splits))
    panels += [TreePanel(name, other, gold) for name, other in beside.items()]
    if gold is not None and panels:
        panels.insert(0, TreePanel("gold tree", gold, others=panels[0].tree))
    distances = {name: tree.distances for name, tree in analysis.trees_by_layer.items()}
    return Result(
        title=" ".join(reading.words),
        caption=caption,
        svg=sentence_figure(reading.words, panels, distances, reading.surprisals, reading.is_unknown),
        table=sentence_table(analysis),
        link=link,
        tree=tree,
        details={
            "reading": reading,
            "gold": _gold_comparison(analysis),
            "num_steps": len({split.step for split in splits.values()}),
        },
    )


def _pair_result(models: DemoModels, sentences: Mapping[str, str], choices: Choices) -> Result:
    pair = models.compare(**sentences, choices=choices)
    columns = pair.columns()
    decisive = deciding_column(pair, columns)
    decides: PairColumn | None = None if decisive is None else columns[decisive]
    return Result(
        title=" / ".join(" ".join(reading.words) for reading in (pair.grammatical, pair.ungrammatical)),
        caption=choices.model,
        svg=pair_figure(pair, choices.model),
        table=pair_table(pair),
        link=choices.link("", **sentences),
        tree=None,
        details={"pair": pair, "decides": decides},
    )


def _gold_comparison(analysis: SentenceAnalysis) -> dict[str, Any] | None:
    """The scores against the gold tree, and the constituents that agree and disagree."""
    if not (scores := analysis.scores()):
        return None
    words = analysis.reading.words
    whole_sentence = {(0, len(words))}
    induced, gold = set(analysis.tree.spans()) - whole_sentence, set(analysis.gold.spans()) - whole_sentence

    def phrases(spans: Iterable[tuple[int, int]]) -> list[str]:
        return [" ".join(words[start:end]) for start, end in sorted(spans)]

    return {
        "scores": {
            name: (score.sentence_f1, score.sentence_precision, score.sentence_recall)
            for name, score in scores.items()
        },
        "constituents": {
            "In both": phrases(induced & gold),
            "Only induced": phrases(induced - gold),
            "Only gold": phrases(gold - induced),
        },
    }
