import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import pytest

from onlstm_hf.demo.models import Choices
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES

library("jinja2", reason='the demo needs pip install "onlstm_hf[demo]"')
from onlstm_hf.demo import examples  # noqa: E402
from onlstm_hf.demo.pages import FILES, file_content, file_stem, page_html  # noqa: E402

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
        if tag == "input" and attributes.get("type") != "range":  # that one stays in the page
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
    assert page.checked == {"model": "onlstm", "layer": "", "bias": "right", "treebank": "1", "beside": ""}


def test_the_link_of_a_result_shows_it_again(models):
    page = shown(models, text="The old cat sat", model="onlstm", layer="1", bias="none", treebank="0")
    fields = page.fields_of("Link to this result")
    assert fields == {"text": "The old cat sat", "model": "onlstm", "layer": "1", "bias": "none", "treebank": "0"}
    again = shown(models, **fields)
    assert again.text == page.text and again.checked == page.checked
    assert {"text": "The old cat sat", **again.checked} == {**fields, "beside": ""}
    pair = {"grammatical": "the dogs saw it", "ungrammatical": "the dog saw it"}
    page = shown(models, **pair, model="rnn")
    assert page.fields_of("Link to this result") == {**pair, "model": "rnn", "bias": "right", "treebank": "1"}
    assert "The model prefers the" in " ".join(page.text.split()) and page.tags.count("svg") == 1


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
    svg = ElementTree.fromstring(file_content(models, "figure.svg", {"text": NASTY, "treebank": "0"})[0])
    words = [element.text for element in svg.iter()]
    assert set(NASTY.split()) <= set(words)


@pytest.mark.parametrize("field", ["model", "layer", "bias", "treebank", "beside"])
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
    assert page.tags.count("svg") == 1
    shown_text = " ".join(page.text.split())
    for name, score in analysis.scores().items():
        figures = (score.sentence_f1, score.sentence_precision, score.sentence_recall)
        assert f"{name} {' '.join(f'{100 * figure:.1f}' for figure in figures)}" in shown_text
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
    for kind, file in FILES.items():
        assert page.links[kind].startswith(f"download/{file}?")
        fields = page.fields_of(kind)
        assert fields == {"text": "the <b>old cat sat", **choices}
        content, name = file_content(models, file, fields)
        assert name == f"the-b-old-cat-sat{Path(file).suffix}"
        if file == "tree.txt":
            assert content == f"{analysis.tree.to_bracket()}\n"
        elif file == "table.json":
            record = json.loads(content)
            assert record["made_by"] == "onlstm, layer 1, rule without bias"
            assert record["tree"] == analysis.tree.to_bracket()
            assert [word["word"] for word in record["words"]] == list(analysis.reading.words)
            distances = [word["distance, layer 1"] for word in record["words"]]
            assert distances == pytest.approx(analysis.tree.distances)
        elif file == "table.tsv":
            header, *rows = [line.split("\t") for line in content.splitlines()]
            assert header[0] == "word" and header[-2:] == ["surprisal (bits)", "unknown"]
            assert [row[0] for row in rows] == list(analysis.reading.words)
            assert [float(row[-2]) for row in rows] == pytest.approx(analysis.reading.surprisals, rel=1e-3)
            assert [row[-1] for row in rows] == ["no", "yes", "no", "no"]
        else:
            assert analysis.tree.to_bracket().replace("<", "&lt;").replace(">", "&gt;") in content


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


def test_a_pair_has_its_figure_and_its_numbers_but_no_tree(models):
    pair = {"grammatical": "the dogs saw it", "ungrammatical": "the old dog saw it"}
    assert "difference by word" in file_content(models, "figure.svg", pair)[0]
    header, *rows = [line.split("\t") for line in file_content(models, "table.tsv", pair)[0].splitlines()]
    assert [row[0] for row in rows] == ["the", "dogs", "", "saw", "it", "(end)"]
    assert [row[2] for row in rows] == ["the", "old", "dog", "saw", "it", "(end)"]
    difference = models.compare(**pair, choices=models.default_choices()).difference
    assert sum(float(row[-1]) for row in rows) == pytest.approx(difference, abs=0.01)
    with pytest.raises(ValueError, match="has no tree"):
        file_content(models, "tree.txt", pair)


def test_the_trees_of_all_layers_or_of_another_model_stand_in_the_same_figure(models):
    svg = file_content(models, "figure.svg", {"text": "the old cat sat", "beside": "layers"})[0]
    captions = [element.text for element in ElementTree.fromstring(svg).findall(".//{*}text")]
    assert {"onlstm, layer 2, the papers' rule", "layer 1", "layer 3"} <= set(captions)
    words = ["the", "old", "cat", "sat"]
    assert [caption for caption in captions if caption in words] == words * 3
    for text in ("the old cat sat", "(the (old cat) sat)"):  # a model that has no tree beside one that has
        svg = file_content(models, "figure.svg", {"text": text, "model": "rnn", "beside": "onlstm"})[0]
        assert "onlstm, layer 2: (" in svg and ("gold tree: (" in svg) == text.startswith("(")
    svg = file_content(models, "figure.svg", {"text": "the old cat sat", "model": "prpn", "beside": "onlstm"})[0]
    assert "onlstm, layer 2: (" in svg
    svg = file_content(models, "figure.svg", {"text": "the old cat sat", "beside": "prpn"})[0]
    model, tokenizer = models.checkpoints["prpn"]
    assert f"prpn: {model.parse([words], tokenizer)[0].to_bracket()}" in svg


def test_the_preview_of_a_link_has_the_sentence_and_its_picture(models):
    html, _ = page_html(models, {"text": "the \"old' <b>cat", "layer": "3"}, "https://trees.example.org")
    tags = dict(re.findall(r'<meta property="(og:[a-z]+)" content="([^"]*)">', html))
    assert tags["og:title"] == "the old b cat"
    picture = unescape(tags["og:image"])
    assert picture.startswith("https://trees.example.org/download/figure.png?text=the+%22old%27+%3Cb%3Ecat&")
    assert dict(parse_qsl(urlsplit(picture).query))["layer"] == "3"
    assert "<title>the old b cat · onlstm, layer 3, the papers&#39; rule</title>" in html


@pytest.mark.parametrize(
    "title, stem",
    [
        ("the company said", "the-company-said"),
        ('"; filename=x.exe\r\nSet-Cookie: a=b', "filename-x-exe-set-cookie-a-b"),
        ("../../etc/passwd", "etc-passwd"),
        ("\u202e\x00été 猫", "t"),
        ("猫", "sentence"),
        ("cat " * 80, "-".join(["cat"] * 15)),
    ],
)
def test_downloads_are_named_after_the_sentence_in_letters_digits_and_hyphens(title, stem):
    assert file_stem(title) == stem


def test_the_outline_has_every_word_in_its_constituents(models):
    html, _ = page_html(models, {"text": "the old cat sat"})
    outline = html.partition('<ul class="outline"')[2].partition(">")[2].partition("</section>")[0]
    (tree,) = models.checkpoints["onlstm"][0].parse([["the", "old", "cat", "sat"]], models.checkpoints["onlstm"][1])
    brackets = outline[: outline.index("<p>")].replace("<li><ul>", "(").replace("</ul></li>", ")")
    brackets = brackets.replace("</li><li>", " ").replace("</li>(", " (").replace(")<li>", ") ").replace(")(", ") (")
    assert re.sub(r"</?(li|ul)>|\n", "", brackets).strip() == tree.to_bracket()


def test_all_examples_are_shown_without_a_message(models):
    for sentences in examples.SENTENCES.values():
        for sentence in sentences:
            assert shown(models, text=sentence).alerts == 0
    for pairs in examples.PAIRS.values():
        for grammatical, ungrammatical in pairs:
            assert shown(models, grammatical=grammatical, ungrammatical=ungrammatical).alerts == 0


def test_nothing_on_the_page_is_measured_in_nats(models):
    for fields in ({"text": "the zebra sat"}, {"grammatical": "the dogs saw it", "ungrammatical": "the dog saw it"}):
        text = shown(models, **fields).text
        assert "bits" in text and "nats" not in text and "natural logarithm" not in text
    assert "their surprisal is that of <unk>" in " ".join(shown(models, text="the zebra sat").text.split())


def test_text_from_right_to_left_keeps_its_direction_on_the_page(models):
    html, _ = page_html(models, {"text": "القطة السوداء نامت"})
    for element in ("textarea", "h2", "ul", "td"):
        assert re.search(rf'<{element}\b[^>]*\bdir="auto"', html), element
    assert "<bdi>القطة</bdi>" in html  # an unknown word within an English sentence
