"""The recorded training runs of the web page."""

from tests.helpers.training_runs import write_texts
from training import record_growth


def test_a_text_needs_gold_trees(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_texts(train=40, valid=12)
    text = ["--train_files", "train.txt", "--validation_files", "valid.txt"]
    assert record_growth.main(["growth.json", *text]) == 1
    assert "also give --gold_trees" in capsys.readouterr().err
