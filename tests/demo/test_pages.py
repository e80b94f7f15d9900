from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import pytest

from onlstm_hf.demo.models import Choices
from tests.helpers.tiny_models import MODEL_TYPES

pytest.importorskip("jinja2", reason='the demo needs pip install "onlstm_hf[demo]"')
from onlstm_hf.demo.pages import file_content, page_html

NASTY = """<script>alert(1)</script> </svg><img src=x onerror="alert(2)"> &amp; "quoted" 'x' {{7*7}} ${7*7} ]]>"""


class Page(HTMLParser):
    """The elements, the text, the links and the form of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.links, self.values, self.checked, self.alerts = [], "", {}, {}, {}, 0
        self.definitions, self._tag, self._link = {}, "", None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        self.tags.append(tag)
        self._tag = tag
        self._link = attributes.get("href") if tag == "a" else self._link
        self.alerts += attributes.get("role") == "alert"
        if tag == "input":
            self.values.setdefault(attributes["name"], []).append(attributes["value"])
            if "checked" in attributes:
                self.checked[attributes["name"]] = attributes["value"]

    def handle_data(self, data):
        self.text += data
        if self._tag == "dt" and data.strip():
            self.definitions[data] = ""
        elif self._tag in ("dd", "span") and data.strip():
            self.definitions[list(self.definitions)[-1]] += data
        if self._link is not None:
            self.links[data] = self._link
            self._link = None

    def fields_of(self, link):
        return dict(parse_qsl(urlsplit(self.links[link]).query))


def shown(models, **fields):
    html, succeeded = page_html(models, fields)
    page = Page(html)
    assert succeeded == (page.alerts == 0)
    return page


def test_the_first_visit_shows_an_example(models):
    page = shown(models)
    assert "the company said it expects" in page.text and page.tags.count("svg") == 1
    assert page.checked == {"model": "onlstm", "layer": "", "bias": "right", "treebank": "1"}


def test_the_link_of_a_result_shows_it_again(models):
    page = shown(models, text="The old cat sat", model="onlstm", layer="1", bias="none", treebank="0")
    fields = page.fields_of("Link to this result")
    assert fields == {"text": "The old cat sat", "model": "onlstm", "layer": "1", "bias": "none", "treebank": "0"}
    again = shown(models, **fields)
    assert again.text == page.text and again.checked == page.checked
    assert {"text": "The old cat sat", **again.checked} == fields
    pair = {"grammatical": "the dogs saw it", "ungrammatical": "the dog saw it"}
    page = shown(models, **pair, model="rnn")
    assert page.fields_of("Link to this result") == {**pair, "model": "rnn", "bias": "right", "treebank": "1"}
    assert "The model prefers the" in " ".join(page.text.split()) and page.tags.count("svg") == 2


@pytest.mark.parametrize("name", MODEL_TYPES)
@pytest.mark.parametrize("treebank", ["0", "1"])
def test_whatever_is_typed_stands_in_the_page_as_text(models, name, treebank):
    choices = {"model": name, "treebank": treebank}
    for fields in (
        {"text": NASTY, **choices},
        {"grammatical": NASTY, "ungrammatical": "the cat", **choices},
        {"grammatical": "the cat", "ungrammatical": NASTY, **choices},
    ):
        page = shown(models, **fields)
        assert not {"img", "iframe", "object", "base"} & set(page.tags)
        assert page.tags.count("script") == 1  # the page's own
        assert page.fields_of("Link to this result").items() >= fields.items()
        if treebank == "0":
            assert "<script>alert(1)</script>" in page.text and "{{7*7}}" in page.text
    svg = ElementTree.fromstring(file_content(models, "figure.svg", {"text": NASTY, "treebank": "0"}))
    words = [element.text for element in svg.iter()]
    assert set(NASTY.split()) <= set(words)


@pytest.mark.parametrize("field", ["model", "layer", "bias", "treebank"])
def test_a_choice_that_does_not_exist_is_named_and_no_markup(models, field):
    page = shown(models, text="the cat", **{field: NASTY})
    assert page.alerts == 1 and f"There is no {field} '<script>" in page.text
    assert page.tags.count("script") == 1 and "svg" not in page.tags
    assert NASTY not in page.values[field]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"text": "<b>cat</b> " * 500}, "at most 4,000"),
        ({"text": ""}, "no sentence yet"),
        ({"text": "(the cat"}, "never closed"),
        ({"grammatical": "the cat"}, "without words"),
        ({"grammatical": "", "ungrammatical": ""}, "without words"),
    ],
)
def test_the_page_says_what_the_user_has_to_mend_and_keeps_what_was_typed(models, fields, message):
    page = shown(models, **fields)
    assert message in page.text
    assert fields.get("text", "") in page.text
    assert page.values.get("grammatical") == ([fields["grammatical"]] if "grammatical" in fields else None)


def test_a_gold_tree_is_shown_with_its_scores_and_what_agrees(models):
    model, tokenizer = models.checkpoints["onlstm"]
    text = "((the old cat) (sat (on it)))"
    ((_, analysis),) = models.analyze(text, models.default_choices())
    page = shown(models, text=text)
    assert page.tags.count("svg") == 2
    assert f"F1 {100 * analysis.scores().sentence_f1:.1f}" in " ".join(page.text.split())
    induced = set(model.parse([list(analysis.gold.words)], tokenizer)[0].spans())
    for (start, end), phrase in {(0, 3): "the old cat", (3, 6): "sat on it", (4, 6): "on it"}.items():
        assert phrase in page.definitions["In both" if (start, end) in induced else "Only gold"]
    only_induced = induced - set(analysis.gold.spans())
    assert (page.definitions["Only induced"] == "none") == (not only_induced)


def test_a_model_without_trees_says_so_and_shows_surprisals(models):
    page = shown(models, text="the cat sat", model="rnn")
    assert "induces no trees" in page.text and "surprisal" in page.text
    assert "brackets" not in page.links and "SVG" in page.links


def test_the_verdict_names_the_preferred_sentence_ties_and_unknown_words(models):
    def verdict(grammatical, ungrammatical):
        return " ".join(shown(models, grammatical=grammatical, ungrammatical=ungrammatical).text.split())

    pair = ("the dogs saw it", "the dog saw it")
    difference = models.compare(*pair, choices=models.default_choices()).difference
    better, worse = (pair, pair[::-1]) if difference > 0 else (pair[::-1], pair)
    assert "prefers the grammatical" in verdict(*better)
    assert "prefers the ungrammatical" in verdict(*worse)
    tie = verdict("the zebra sat", "the zebu sat")
    assert "A tie" in tie and "unknown to the model" in tie


def test_downloads_are_the_picture_and_the_brackets_of_the_sentence(models):
    ((_, analysis),) = models.analyze("the <b>old cat sat", Choices("onlstm", layer=1, bias="none", treebank=False))
    choices = {"model": "onlstm", "layer": "1", "bias": "none", "treebank": "0"}
    page = shown(models, text="the <b>old cat sat", **choices)
    for kind, file in {"SVG": "figure.svg", "PNG": "figure.png", "brackets": "tree.txt"}.items():
        assert page.links[kind].startswith(f"download/{file}?")
        fields = page.fields_of(kind)
        assert fields == {"text": "the <b>old cat sat", **choices}
        expected = f"{analysis.tree.to_bracket()}\n" if file == "tree.txt" else analysis.to_svg()
        assert file_content(models, file, fields) == expected


@pytest.mark.parametrize(
    "file, fields, message",
    [
        ("tree.txt", {"text": "the cat", "model": "rnn"}, "induces no trees"),
        ("figure.svg", {"text": "the cat\nit sat"}, "one sentence"),
        ("figure.svg", {}, "no sentence"),
        ("figure.svg", {"text": "the cat", "bias": "<b>"}, "no bias '<b>'"),
    ],
)
def test_files_that_do_not_exist_are_refused(models, file, fields, message):
    with pytest.raises(ValueError, match=message):
        file_content(models, file, fields)
