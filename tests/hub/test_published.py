from pathlib import Path

import pytest
import yaml

from onlstm_hf.hub.cards import published
from onlstm_hf.hub.cards.published import central_figures, published_figure, published_figures

CONTENT = yaml.safe_load(Path(published.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SOURCES = CONTENT["sources"]
TASKS = [task for task in CONTENT if task != "sources"]


@pytest.mark.parametrize("task", TASKS)
def test_every_figure_has_a_source_a_place_and_a_verification_status(task):
    citations = {source["text"] for source in SOURCES.values()}
    figures = published_figures(task)
    assert figures
    for row in figures:
        assert row["system"] and row["source"] in citations
        assert row.keys() & {"computed", "verified", "place"} in ({"computed"}, {"verified", "place"})
        assert row.get("computed", True) is True and isinstance(row.get("verified", True), bool)
        assert row.get("central", True) is True
    assert [row for row in figures if row.get("central")] == central_figures(task) != []


def test_every_source_is_cited_and_has_a_title():
    assert {row["source"] for task in TASKS for row in CONTENT[task]} == set(SOURCES)
    assert all(set(source) == {"text", "title"} for source in SOURCES.values())


def test_a_system_is_found_by_its_name():
    perplexity = published_figure("language modelling", "ON-LSTM")["perplexity"]
    assert perplexity["test"] < perplexity["valid"]
    task = "unsupervised constituency parsing"
    prpn, onlstm = (published_figure(task, system) for system in ("PRPN-LM", "ON-LSTM, layer 2"))
    assert prpn["wsj"]["mean"] < onlstm["wsj"]["mean"]
