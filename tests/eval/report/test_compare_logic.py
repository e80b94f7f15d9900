"""The table and the figure of logical inference."""

import json

import pytest

from eval import compare_logic
from onlstm_hf.logic.scores import score_logic
from tests.helpers.requirements import library


@pytest.fixture
def results(tmp_path):
    paths = []
    for name, predictions in (("onlstm", ["<", "#", "=", "v"]), ("lstm", ["<", "#", "#", "#"])):
        content = {
            "task": "logical inference",
            "name": name,
            "test": score_logic(predictions, ["<", "#", "=", "#"], [1, 1, 7, 12]),
            "validation_accuracy": 0.5,
            "parameters": 1234,
            "epochs": 3,
            "recipe": {"max_train_operators": 6},
        }
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(content))
    return list(map(str, paths))


def test_the_table_has_a_row_per_number_and_a_column_per_run(results, capsys):
    assert compare_logic.main(results) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["operators", "pairs", "onlstm", "lstm"] in [line[:4] for line in lines]
    published = {"7": ["91", "88", "84", "94"], "12": ["75", "69", "71", "86"]}
    for row in (["1", "2", "100.0", "100.0"], ["7", "1", "100.0", "0.0"], ["12", "1", "0.0", "100.0"]):
        assert row + published.get(row[0], []) in lines
    assert ["all", "75.0", "75.0"] in lines and ["parameters", "1234", "1234"] in lines


def test_the_figure_has_a_curve_per_run(results, tmp_path):
    library("matplotlib")
    path = tmp_path / "logic.svg"
    assert compare_logic.main([*results, "--plot", str(path)]) == 0
    text = path.read_text()
    assert "<svg" in text and "lstm" in text and "trained on at most 6" in text
    assert compare_logic.main([*results, "--plot", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_text() == text
