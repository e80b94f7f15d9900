"""Figure of a run: curves and baselines."""

import json

from tests.helpers.requirements import library
from training.language_models.curves import draw_curves

library("matplotlib")
LOG = [
    {"step": 10, "epoch": 0, "perplexity": 300.0, "loss": 5.7},
    {"step": 20, "epoch": 1, "validation_perplexity": 200.0, "parsing_f1": 30.0, "parsing_f1_layer_1": 20.0},
    {"step": 30, "epoch": 1, "perplexity": 150.0, "loss": 5.0},
    {"step": 40, "epoch": 2, "validation_perplexity": 120.0, "parsing_f1": 45.0, "parsing_f1_layer_1": 25.0},
]


def write_log(folder, entries):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_the_figure_has_perplexity_f1_and_baselines_and_is_reproducible(tmp_path):
    log = write_log(tmp_path, LOG)
    assert draw_curves(log, tmp_path / "curves.svg", {"right branching": 0.4, "balanced": 0.3})
    svg = (tmp_path / "curves.svg").read_bytes()
    for name in ("training", "validation", "layer 1", "right branching", "balanced", "sentence F1", "perplexity"):
        assert f"<!-- {name}" in svg.decode(), name
    assert draw_curves(log, tmp_path / "again.svg", {"right branching": 0.4, "balanced": 0.3})
    assert (tmp_path / "again.svg").read_bytes() == svg


def test_without_gold_trees_there_is_one_panel_and_without_a_validation_no_figure(tmp_path):
    assert not draw_curves(write_log(tmp_path, LOG[:1]), tmp_path / "curves.svg", {})
    assert not (tmp_path / "curves.svg").exists()
    entries = [{key: value for key, value in entry.items() if "parsing" not in key} for entry in LOG]
    assert draw_curves(write_log(tmp_path, entries), tmp_path / "curves.svg", {})
    svg = (tmp_path / "curves.svg").read_text()
    assert "axes_1" in svg and "axes_2" not in svg
