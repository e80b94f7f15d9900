"""The card of a classifier of formula pairs states its measured results, and its example runs."""

import re

import pytest
from huggingface_hub import ModelCard
from transformers import AutoConfig

from onlstm_hf.hub.cards.logic import logic_card
from tests.helpers.logic_checkpoints import save_logic_run


@pytest.fixture(scope="module", params=["onlstm", "lstm", "tree_lstm"])
def run(request, tmp_path_factory):
    """The folder of a run, its results and its card."""
    folder = tmp_path_factory.mktemp(request.param)
    results = save_logic_run(folder, request.param)
    card = logic_card("ada/tiny-logic", AutoConfig.from_pretrained(folder / "best"), results)
    return folder, results, card, request.param


def test_metadata_are_valid_and_contain_the_accuracies(run, tmp_path):
    _, _, card, name = run
    card.save(tmp_path / "README.md")
    data = ModelCard.load(tmp_path / "README.md").data
    assert (data.license, data.library_name) == ("apache-2.0", "transformers")
    assert data.pipeline_tag == "text-classification"
    assert {"onlstm": "on-lstm", "lstm": "lstm", "tree_lstm": "tree-lstm"}[name] in data.tags
    assert {result.metric_name: result.metric_value for result in data.eval_results} == {
        "test accuracy": 60.0,
        "test accuracy, pairs of 1 operators": 100.0,
        "test accuracy, pairs of 2 operators": 0.0,
        "test accuracy, pairs of 7 operators": 100.0,
        "test accuracy, pairs of 12 or more operators": 0.0,
    }


def test_the_text_describes_only_this_training(run):
    _, _, card, name = run
    text = " ".join(card.text.split())
    assert "121,977 pairs of `propositionallogic` with at most 6 operators" in text
    assert "| 1 | 2 | 100.0 | | 2 | 1 | 0.0 | | 7 | 1 | 100.0 | | 12 or more | 1 | 0.0 |" in text
    assert "Accuracy on all pairs is 60.0 %, and 60.0 % as a mean over the relations. The most frequent" in text
    assert "47,650 updates in 50 epochs; these are the weights after epoch 45" in text
    assert ("along its brackets" in text) == (name == "tree_lstm")
    assert ("shen2019ordered" in text) == (name == "onlstm")
    assert not re.search("Penn|perplexity|newspaper|parse", text)


def test_the_example_of_the_card_runs(run, capsys):
    folder, _, card, _ = run
    block = card.text.split("```python\n")[1].split("```")[0]
    exec(block.replace('"ada/tiny-logic"', repr(str(folder / "best"))).replace(", trust_remote_code=True", ""))
    assert "'label': '" in capsys.readouterr().out


def test_generated_pairs_are_described_by_number_and_seed(run):
    folder, results, _, _ = run
    recipe = {**results["recipe"], "pairs": None, "num_pairs": 249_000, "pairs_seed": 3}
    card = logic_card("tiny", AutoConfig.from_pretrained(folder / "best"), {**results, "recipe": recipe})
    assert "121,977 pairs of the 249,000 that onlstm_hf generates with seed 3" in card.text


def test_incomplete_results_are_refused(run):
    folder, results, _, _ = run
    del (results := dict(results))["test"]
    with pytest.raises(ValueError, match="these results lack 'test'"):
        logic_card("tiny", AutoConfig.from_pretrained(folder / "best"), results)
