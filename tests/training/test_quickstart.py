"""The quickstart script."""

import json
from functools import partial

import pytest

from training import quickstart


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("option", ["--output_dir", "--output-dir"])
def test_all_files_are_written_to_the_output_folder(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"num_train": 60, "num_validation": 10, "num_test": 10}
    monkeypatch.setattr(quickstart, "write_toy_corpus", partial(quickstart.write_toy_corpus, **sizes))
    results = quickstart.main([option, "asked", "--max_steps", "2", "--model.hidden_size", "40"])
    assert [path.name for path in tmp_path.iterdir()] == ["asked"]
    folder = tmp_path / "asked"
    assert read_json(folder / "results.json") == results
    assert {"corpus", "model", "tree-1.svg"} <= {path.name for path in folder.iterdir()}
    assert read_json(folder / "model" / "results.json")["test_perplexity"] == results["test_perplexity"]
