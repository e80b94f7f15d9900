"""Figures that pages have in sentences, and in tables of their own, are those of the results files."""

import json
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

ROOT = Path(__file__).parents[3]
TEST, VALID = (f"$ONLSTM_SHARED/data/ptb/{part}.txt" for part in ("test", "valid"))
LAYERS = [f"layer {number} (--layer {number - 1})" for number in (1, 2, 3)]
LANGUAGES = {"English (WSJ sample)": "en", "Spanish": "es", "Portuguese": "pt", "Dutch": "nl"}
RULES = {"papers'": "right", "unbiased": "none"}
# The trees behind a cell of the tables of punctuation, where it is no checkpoint's name.
TREES = {
    "five ON-LSTMs that did not read the sentences, mean": "onlstm_ptb_small_unseen/",
    "five PRPNs that did not read the sentences, mean": "prpn_ptb_small_unseen/",
    "ON-LSTM, one seed": "languages/onlstm_",
    "`onlstm-ptb`": "onlstm_ptb_cpu/",
}


def results(name: str) -> dict:
    return json.loads((ROOT / "eval" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def section(page: str, heading: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[1]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def f1_of_layers(name: str) -> list[float]:
    (model,) = results(name)["models"]
    return [model["scores"]["all"][layer]["sentence_f1"] for layer in LAYERS]


def ties_of_blimp():
    scores = results("syntax_ptb_small")["models"][0]["scores"]["BLiMP"]
    correct, ties, pairs = (scores[f"num_{name}"] for name in ("correct", "ties", "pairs"))
    return [f"{ties:,}", f"{pairs:,}", percent((correct + ties) / pairs), percent(correct / pairs)]


def gain_of_the_mixture():
    scores = results("lm_mixture")
    best = min(model["scores"][TEST]["perplexity"] for model in scores["models"])
    return [percent(1 - scores["mixture"]["scores"][TEST]["perplexity"] / best)]


def mixture_of_softmaxes():
    figures = []
    for name in ("onlstm_ptb_small", "onlstm_ptb_small_mixture"):
        scores = results(f"lm_{name}")
        figures += [f"{scores['num_parameters']:,}"]
        figures += [f"{scores['scores'][text]['perplexity']:.2f}" for text in (VALID, TEST)]
        figures += [percent(f1) for f1 in f1_of_layers(f"parsing_{name}")]
    return figures


def events():
    documents = results("scripts_entities")["documents"].values()
    figures = [f"{sum(part[name] for part in documents):,}" for name in ("num_events", "num_documents")]
    for name in ("scripts_entities", "scripts_nouns"):
        models = results(name)["models"]
        recall = {
            system: mean(model["scores"]["recall"] for model in models if model["system"] == system)
            for system in ("LSTM", "bigram")
        }
        num_events = models[0]["scores"]["num_events"]
        figures += [f"{num_events:,}", f"{100 * (recall['LSTM'] / recall['bigram'] - 1):.0f}"]
        figures += [f"{num_events * (recall['LSTM'] - recall['bigram']):.0f}"]
    return figures


def seeds_with_the_earlier_run():
    def f1(name):
        return [model["scores"]["all"][LAYERS[1]]["sentence_f1"] for model in results(name)["models"]]

    runs = [100 * value for value in f1("parsing_seeds_onlstm") + f1("parsing_onlstm_ptb_small_unseen")]
    return [f"{mean(runs):.1f}", f"{stdev(runs):.1f}"]


def f1_before_rounding():
    return [f"{100 * f1_of_layers('parsing_onlstm_ptb_small_distilled')[2]:.2f}"]


def bytes_of_weights():
    folders = ("model_cards", "onlstm_hf/pretrained")
    files = [ROOT / folder / "onlstm-ptb-small-distilled" / "model.safetensors" for folder in folders]
    return [f"{file.stat().st_size:,}" for file in files]


def unknown_words():
    shares = results("unknown_words")["unknown_words"]
    return [str(results("unknown_words")["num_sentences"]), *map(percent, set(shares.values()))]


@pytest.mark.parametrize(
    ("page", "heading", "figures"),
    [
        ("README.md", "Results", seeds_with_the_earlier_run),
        ("docs/released-models.md", "Unseen sentences", seeds_with_the_earlier_run),
        ("docs/evaluation.md", "Perplexity", gain_of_the_mixture),
        ("docs/evaluation.md", "Scripts", events),
        ("docs/evaluation.md", "Other tools", ties_of_blimp),
        ("docs/models.md", "Mixture of softmaxes", mixture_of_softmaxes),
        ("docs/installation.md", "From a wheel", f1_before_rounding),
        ("docs/installation.md", "From a wheel", bytes_of_weights),
        ("docs/text.md", "From text to words", unknown_words),
    ],
)
def test_a_section_has_the_figures_of_the_results(page, heading, figures):
    written = re.findall(r"\d[\d,]*(?:\.\d+)?", section(page, heading))
    written = {number.rstrip(",") for number in written}
    assert not [figure for figure in figures() if figure not in written]


def f1_with_marks(language: str, model: str, rule: str, strengths: list[str], part: str = "") -> list[str]:
    """The mean F1 of the models that a row of a table names, by the strength of the cue."""
    wanted = TREES.get(model) or f"model_cards/{model.strip('`')}"
    rows = [
        row["sentence_f1"][RULES[rule]]
        for row in results(f"punctuation_{LANGUAGES[language]}{part}")["models"]
        if row["model"] == wanted or (wanted.endswith(("/", "_")) and wanted in row["model"])
    ]
    return [percent(mean(row[strength] for row in rows)) for strength in strengths]


def test_the_tables_of_punctuation_are_those_of_the_results():
    lines = [line for line in section("docs/text.md", "Punctuation").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    validation, test = (
        [row for row in rows if row[column : column + 1] and row[column] in RULES] for column in (1, 2)
    )
    assert {row[0] for row in validation} == LANGUAGES.keys() - {"English (WSJ sample)"}
    for language, rule, *f1 in validation:
        released = f"prpn-{LANGUAGES[language]}-small"
        assert f1 == f1_with_marks(language, released, rule, list("012345"), "_valid"), (language, rule)
    assert {row[0] for row in test} == LANGUAGES.keys()
    for language, model, rule, *f1 in test:
        assert f1 == f1_with_marks(language, model, rule, ["0", "4"]), (language, model, rule)
