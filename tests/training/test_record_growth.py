"""The recorded training runs of the web page."""

from tests.helpers.training_runs import write_texts
from training import record_growth


def test_a_text_needs_gold_trees(tmp_path, monkeypatch, refusal):
    monkeypatch.chdir(tmp_path)
    write_texts(train=40, valid=12)
    text = ["--train_files", "train.txt", "--validation_files", "valid.txt"]
    assert "also give --gold_trees" in refusal(record_growth, "growth.json", *text)
