"""Small scripts: quickstart, the recorded training runs of the web page, and the model inside the package."""

import json
from functools import partial

import pytest

from onlstm_hf.utils.checkpoints import PACKED_MODEL
from tests.helpers.folders import contents
from tests.helpers.training_runs import write_texts
from training import quickstart, record_growth
from training.pack import main as pack


@pytest.mark.parametrize("option", ["--output_dir", "--output-dir"])
def test_all_files_are_written_to_the_output_folder(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"num_train": 60, "num_validation": 10, "num_test": 10}
    monkeypatch.setattr(quickstart, "write_toy_corpus", partial(quickstart.write_toy_corpus, **sizes))
    results = quickstart.main([option, "asked", "--max_steps", "2", "--model.hidden_size", "40"])
    assert [path.name for path in tmp_path.iterdir()] == ["asked"]
    folder = tmp_path / "asked"
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == results
    assert {"corpus", "model", "tree-1.svg"} <= {path.name for path in folder.iterdir()}
    training = json.loads((folder / "model" / "results.json").read_text())
    assert training["test_perplexity"] == results["test_perplexity"]


def test_a_text_needs_gold_trees(tmp_path, monkeypatch, refusal):
    monkeypatch.chdir(tmp_path)
    write_texts(train=40, valid=12)
    text = ["--train_files", "train.txt", "--validation_files", "valid.txt"]
    assert "also give --gold_trees" in refusal(record_growth, "growth.json", *text)


def test_the_model_inside_the_package_is_the_released_one_in_eight_bits(project_root, tmp_path):
    pack([str(project_root / "model_cards" / PACKED_MODEL.name), str(tmp_path / "packed")])
    assert contents(PACKED_MODEL) == contents(tmp_path / "packed")
