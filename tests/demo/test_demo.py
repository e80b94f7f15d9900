import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest
from demo_server import running_demo
from tiny_models import MODEL_TYPES

from onlstm_hf import build_word_tokenizer
from onlstm_hf.analysis_html import analysis_html, message_html, pair_html
from onlstm_hf.command_line import main
from onlstm_hf.demo_models import MAX_CHARACTERS, MAX_SENTENCES, MAX_WORDS, Choices, DemoModels

WORDS = ["<eos>", "<unk>", "the", "cat", "sat", "on", "mat", "old", "dog", "saw", "dogs", "it", "a"]
NASTY = """<script>alert(1)</script> </svg><img src=x onerror="alert(2)"> &amp; "quoted" 'x' {{7*7}} ${7*7} ]]>"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A tiny checkpoint of each model type, in folders named after them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tokenizer = build_word_tokenizer(vocabulary=WORDS, pad_token="<eos>")
    for name, kind in MODEL_TYPES.items():
        kind.make(eos_token_id=0).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return [str(folder / name) for name in MODEL_TYPES]


@pytest.fixture(scope="module")
def models(checkpoints):
    return DemoModels(checkpoints)


@pytest.fixture(scope="module")
def temporary_files(tmp_path_factory):
    return tmp_path_factory.mktemp("gradio")


@pytest.fixture(scope="module")
def address(checkpoints, temporary_files):
    pytest.importorskip("gradio", reason='the demo needs pip install "onlstm_hf[demo]"')
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("GRADIO_TEMP_DIR", str(temporary_files))
        with running_demo(checkpoints) as address:
            yield address


@pytest.fixture(scope="module")
def client(address):
    from gradio_client import Client

    # On a busy machine answers take their time; none may be lost.
    return Client(address, verbose=False, analytics_enabled=False, httpx_kwargs={"timeout": 120})


class Page(HTMLParser):
    """The elements, the text and the links of some HTML."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.links, self.alerts = [], "", [], 0
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.links += [attributes["href"]] if "href" in attributes else []
        self.alerts += attributes.get("role") == "alert"
        assert not any(name.startswith("on") for name in attributes)

    def handle_data(self, data):
        self.text += data


def get(address, path, **fields):
    with urlopen(f"{address}{path}?{urlencode(fields)}") as response:
        return response.headers, response.read()


# What is computed


def test_models_are_named_after_their_folders_and_say_which_layers_there_are(models):
    assert list(models.checkpoints) == list(MODEL_TYPES)
    assert {name: models.layers(name) for name in MODEL_TYPES} == {"onlstm": [1, 2, 3], "prpn": [], "rnn": []}
    assert models.default_choices() == Choices("onlstm", layer=2, bias="right", treebank=True)
    assert models.default_choices("prpn").layer is None


def test_folders_of_the_same_name_are_named_by_their_paths(checkpoints, tmp_path):
    copy = tmp_path / "onlstm"
    copy.symlink_to(checkpoints[0])
    assert list(DemoModels([checkpoints[0], str(copy)]).checkpoints) == [checkpoints[0], str(copy)]


def test_the_address_of_a_result_brings_its_choices_back(models):
    for choices in [
        *(Choices("onlstm", layer, bias, layer == 1) for layer in (1, 2, 3) for bias in ("right", "none", "ranges")),
        Choices("prpn", bias="ranges"),
        Choices("rnn", treebank=False),
    ]:
        fields = dict(parse_qsl(choices.link("./", text=NASTY).partition("?")[2]))
        assert fields["text"] == NASTY
        assert models.choices(fields) == choices
    assert models.choices({}) == models.default_choices()


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"model": "gpt"}, "no model 'gpt' here; there is onlstm, prpn, rnn"),
        ({"layer": "4"}, "no layer '4' here; there is 1, 2, 3"),
        ({"model": "rnn", "layer": "1"}, "none to choose"),
        ({"bias": "left"}, "there is right, none, ranges"),
        ({"treebank": "yes"}, "there is 0, 1"),
    ],
)
def test_choices_that_do_not_exist_are_named_with_those_that_do(models, fields, message):
    with pytest.raises(ValueError, match=message):
        models.choices(fields)


def test_the_choices_reach_the_model(models):
    choices = Choices("onlstm", layer=1, bias="none", treebank=False)
    ((part, analysis),) = models.analyze("The old cat sat on it", choices)
    model, tokenizer = models.checkpoints["onlstm"]
    assert part == "The old cat sat on it"
    assert analysis.tree == model.parse(part, tokenizer, layer=0, branching_bias="none")
    ((_, spelt),) = models.analyze("The old cat sat on it.", replace(choices, treebank=True))
    assert spelt.reading.words == ("the", "old", "cat", "sat", "on", "it")
    assert analysis.reading.unknown_words == ("The",)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no sentence yet"),
        (" \n ", "no sentence yet"),
        ("the cat\n...", "without words"),
        ("a" * (MAX_CHARACTERS + 1), f"at most {MAX_CHARACTERS:,} can be read"),
        ("it\n" * (MAX_SENTENCES + 1), f"at most {MAX_SENTENCES} can be parsed"),
        ("cat " * (MAX_WORDS + 1), f"has {MAX_WORDS + 1} words; at most {MAX_WORDS}"),
        ("(" + "cat " * (MAX_WORDS + 1) + ")", f"has {MAX_WORDS + 1} words; at most {MAX_WORDS}"),
        ("(the cat", "never closed"),
    ],
)
def test_texts_beyond_the_limits_are_refused_with_the_limit(models, text, message):
    with pytest.raises(ValueError, match=message):
        models.analyze(text, models.default_choices())
    if "(" not in text and "\n" not in text:
        with pytest.raises(ValueError, match="at most|without words"):
            models.compare("the cat sat", text, models.default_choices())


def test_texts_at_the_limits_are_parsed(models):
    text = "\n".join(["cat " * MAX_WORDS] * MAX_SENTENCES)
    assert len(text) <= MAX_CHARACTERS
    assert len(models.analyze(text, models.default_choices())) == MAX_SENTENCES


# What is shown


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_whatever_is_typed_stands_in_the_page_as_text(models, name):
    choices = replace(models.default_choices(name), treebank=False)
    ((part, analysis),) = models.analyze(NASTY, choices)
    pages = [
        Page(analysis_html(analysis, {"SVG": choices.link("download/figure.svg", text=part)})),
        Page(pair_html(models.compare(NASTY, "the cat", choices))),
        Page(message_html(NASTY)),
    ]
    for page in pages:
        assert not {"script", "img", "iframe", "object"} & set(page.tags)
        assert "<script>alert(1)</script>" in page.text
    assert pages[0].tags.count("svg") == 1
    assert dict(parse_qsl(pages[0].links[0].partition("?")[2]))["text"] == NASTY
    words = [element.text for element in ElementTree.fromstring(analysis.to_svg()).iter()]
    assert set(NASTY.split()) <= set(words)


def test_a_gold_tree_is_shown_with_its_scores_and_what_agrees(models):
    model, tokenizer = models.checkpoints["onlstm"]
    text = "((the old cat) (sat (on it)))"
    ((_, analysis),) = models.analyze(text, models.default_choices())
    page = Page(analysis_html(analysis, {}))
    assert page.tags.count("svg") == 2
    assert f"F1 {100 * analysis.scores().sentence_f1:.1f}" in page.text
    induced = set(model.parse([list(analysis.gold.words)], tokenizer)[0].spans())
    both, only_induced, only_gold = (
        page.text.partition(f"{name}")[2].partition("Only")[0] for name in ("In both", "Only induced", "Only gold")
    )
    for (start, end), phrase in {(0, 3): "the old cat", (3, 6): "sat on it", (4, 6): "on it"}.items():
        assert phrase in (both if (start, end) in induced else only_gold)
    assert ("none" in only_induced) == (not induced - set(analysis.gold.spans()))


def test_a_model_without_trees_says_so_and_shows_surprisals(models):
    ((_, analysis),) = models.analyze("the cat sat", models.default_choices("rnn"))
    page = Page(analysis_html(analysis, {}))
    assert "induces no trees" in page.text and "surprisal" in page.text


def test_the_verdict_names_the_preferred_sentence_ties_and_unknown_words(models):
    choices = models.default_choices()
    pair = models.compare("the dogs saw it", "the dog saw it", choices)
    swapped = models.compare("the dog saw it", "the dogs saw it", choices)
    better, worse = (pair, swapped) if pair.difference > 0 else (swapped, pair)
    assert "prefers the grammatical" in pair_html(better)
    assert "prefers the ungrammatical" in pair_html(worse)
    tie = pair_html(models.compare("the zebra sat", "the zebu sat", choices))
    assert "A tie" in tie and "unknown to the model" in tie


# The server


def test_twenty_requests_at_once_are_all_answered_each_with_its_own_result(client, models):
    subjects = ["the cat", "the dog", "the old cat", "the old dog", "it"]
    sentences = [
        f"{subject} {rest}" for subject in subjects for rest in ("sat", "saw it", "sat on it", "saw the dogs")
    ]
    jobs = [client.submit(sentence, "onlstm", 2, "right", True, api_name="/parse") for sentence in sentences]
    model, tokenizer = models.checkpoints["onlstm"]
    for job, tree in zip(jobs, model.parse(sentences, tokenizer), strict=True):
        assert f"<code>{tree.to_bracket()}</code>" in job.result(timeout=120)


def test_the_page_answers_with_a_message_where_the_user_has_to_mend_something(client):
    page = Page(client.predict("<b>cat</b> " * 500, "onlstm", 2, "right", True, api_name="/parse"))
    assert page.alerts == 1 and "at most 4,000" in page.text
    page = Page(client.predict("the cat", "", "onlstm", True, api_name="/compare"))
    assert page.alerts == 1 and "without words" in page.text


def test_a_minimal_pair_is_compared(client):
    page = Page(client.predict("the dogs saw it", "the dog saw it", "rnn", True, api_name="/compare"))
    assert "The model prefers the" in page.text and page.tags.count("svg") == 2
    assert dict(parse_qsl(page.links[0].partition("?")[2]))["ungrammatical"] == "the dog saw it"


def test_downloads_are_the_picture_and_the_brackets_of_the_sentence(address, models):
    choices = Choices("onlstm", layer=1, bias="none", treebank=False)
    ((_, analysis),) = models.analyze("the <b>old cat sat", choices)
    fields = {"text": "the <b>old cat sat", "model": "onlstm", "layer": 1, "bias": "none", "treebank": 0}
    headers, svg = get(address, "download/figure.svg", **fields)
    assert headers["Content-Type"] == "image/svg+xml" and "attachment" in headers["Content-Disposition"]
    assert "sandbox" in headers["Content-Security-Policy"]
    assert ElementTree.fromstring(svg).findtext("{*}desc") == ElementTree.fromstring(analysis.to_svg()).findtext(
        "{*}desc"
    )
    assert get(address, "download/tree.txt", **fields)[1].decode() == f"{analysis.tree.to_bracket()}\n"
    pytest.importorskip("resvg_py", reason='PNG needs pip install "onlstm_hf[plot]"')
    assert get(address, "download/figure.png", **fields)[1].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "path, fields, status, message",
    [
        ("download/tree.exe", {"text": "the cat"}, 404, "only figure.svg"),
        ("download/tree.txt", {"text": "the cat", "model": "rnn"}, 400, "induces no trees"),
        ("download/figure.svg", {"text": "the cat\nit sat"}, 400, "one sentence"),
        ("download/figure.svg", {}, 400, "no sentence"),
        ("download/figure.svg", {"text": "the cat", "bias": "<b>"}, 400, "no bias '<b>'"),
    ],
)
def test_downloads_that_do_not_exist_are_refused_in_plain_text(address, path, fields, status, message):
    with pytest.raises(HTTPError) as error:
        get(address, path, **fields)
    assert error.value.status == status
    assert error.value.headers["Content-Type"].startswith("text/plain")
    assert message in error.value.read().decode()


def test_uploads_and_large_requests_are_refused_and_no_files_pile_up(client, address, temporary_files):
    for path, size in (("/gradio_api/upload", 10), ("/gradio_api/queue/join", 2_000_000)):
        with closing(HTTPConnection(urlsplit(address).netloc)) as connection:
            connection.putrequest("POST", path)
            connection.putheader("Content-Length", str(size))
            connection.endheaders()  # the answer comes before the content
            assert connection.getresponse().status == 413
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: get(address, "download/figure.svg", text=f"the cat {number}"), range(8)))
    client.predict("the cat sat", "prpn", None, "ranges", True, api_name="/parse")
    assert [path for path in temporary_files.rglob("*") if path.is_file()] == []


def test_the_page_reports_to_nobody(models):
    pytest.importorskip("gradio", reason='the demo needs pip install "onlstm_hf[demo]"')
    from onlstm_hf.demo import build_page

    assert build_page(models).analytics_enabled is False


def test_the_command_says_what_to_install_where_gradio_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "onlstm_hf.demo", raising=False)
    assert main(["demo"]) == 1
    assert 'pip install "onlstm_hf[demo]"' in capsys.readouterr().err


def test_the_command_serves_the_models_it_is_given(monkeypatch, checkpoints):
    pytest.importorskip("gradio", reason='the demo needs pip install "onlstm_hf[demo]"')
    from onlstm_hf import demo

    served = {}
    monkeypatch.setattr(demo.uvicorn, "run", lambda app, **options: served.update(options))
    assert main(["demo", checkpoints[2], "--port", "1234", "--host", "0.0.0.0"]) == 0
    assert (served["host"], served["port"]) == ("0.0.0.0", 1234)
    monkeypatch.setenv("GRADIO_SERVER_NAME", "1.2.3.4")
    monkeypatch.setenv("ONLSTM_MODEL", checkpoints[1])
    demo.serve()
    assert (served["host"], served["port"]) == ("1.2.3.4", 7860)
