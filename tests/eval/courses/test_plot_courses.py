"""The courses of runs: a row for each layer, and a picture."""

import json

import pytest

from eval.courses import plot_courses
from tests.helpers.requirements import library


def write_log(path, *epochs):
    entries = [{"step": 1, "epoch": 0, "loss": 3.0}]
    for number, (perplexity, f1) in enumerate(epochs, start=1):
        entry = {"step": 10 * number, "epoch": number, "validation_perplexity": perplexity, "parsing_f1": max(f1)}
        layers = {f"parsing_f1_layer_{layer}": value for layer, value in enumerate(f1, start=1)} if len(f1) > 1 else {}
        entries += [entry | layers]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return str(path)


@pytest.fixture
def logs(tmp_path):
    return [
        write_log(tmp_path / "a.jsonl", (90.0, (20.0, 40.0)), (80.0, (25.0, 38.0)), (85.0, (30.0, 37.0))),
        write_log(tmp_path / "b.jsonl", (200.0, (50.0,)), (100.0, (45.5,))),
    ]


def rows_of(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()][2:]


def test_the_table_says_when_trees_and_perplexity_were_best(logs, capsys):
    assert plot_courses.main([*logs, "--names", "ON-LSTM", "PRPN"]) == 0
    assert rows_of(capsys.readouterr().out) == [
        ["ON-LSTM", "layer 1", "30.0", "3", "25.0", "80.00", "2"],
        ["ON-LSTM", "layer 2", "40.0", "1", "38.0", "80.00", "2"],
        ["PRPN", "all layers", "50.0", "1", "45.5", "100.00", "2"],
    ]


def test_the_picture_has_a_column_for_each_run(logs, tmp_path):
    library("matplotlib")
    path = tmp_path / "courses.svg"
    assert plot_courses.main([*logs, "--plot", str(path)]) == 0
    assert all(text in path.read_text() for text in ("a.jsonl", "b.jsonl", "layer 2", "all layers"))


def test_what_cannot_be_drawn_is_said_in_a_sentence(logs, tmp_path, capsys):
    empty = write_log(tmp_path / "c.jsonl")
    for arguments, message in (
        ([*logs, empty], "c.jsonl has no F1 of an epoch: train with --gold_trees"),
        ([*logs, "--names", "one"], "there are 2 logs and 1 names"),
        ([str(tmp_path / "none.jsonl")], "none.jsonl"),
    ):
        assert plot_courses.main(arguments) == 1
        assert message in capsys.readouterr().err
