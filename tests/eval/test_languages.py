"""The released models of other languages are those of their runs."""

import json
from pathlib import Path

import pytest

from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.trees.tree_files import read_tree_file

ROOT = Path(__file__).resolve().parents[2]


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", ["pt", "es", "nl", "zh"])
def test_the_released_model_of_a_language_is_the_seed_that_agrees_most_and_scores_as_its_run(language):
    card = read_json(ROOT / "model_cards" / f"prpn-{language}-small" / "results.json")
    kind = "_characters" if card["training"]["recipe"].get("subwords") else ""
    folder = ROOT / "eval" / "results" / "languages" / f"prpn_{language}{kind}"
    stored = {path.name.split(".")[0]: read_tree_file(path) for path in sorted(folder.glob("*.trees.jsonl.xz"))}
    released = f"seed_{card['training']['recipe']['seed']}"
    with_others = tree_agreement([distances.trees(None, "right") for distances in stored.values()]).sum(axis=1)
    assert released == list(stored)[with_others.argmax()]
    run = read_json(folder / f"{released}.json")
    assert card["perplexity"]["validation"] == pytest.approx(run["validation_perplexity"], rel=1e-3)
    for rule, row in (("right", "induced trees"), ("none", "induced trees, no branching bias")):
        measured = 100 * card["parsing"]["all"][row]["sentence_f1"]
        assert measured == pytest.approx(100 * run["sentence_f1_by_layer"]["all layers"][rule], abs=0.2)
