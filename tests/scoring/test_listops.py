import json

import pytest

from onlstm_hf.logic.listops import generate_listops, read_expression
from onlstm_hf.scoring.listops import score_listops, score_listops_trees
from onlstm_hf.trees.induced_tree import InducedTree

EXPRESSIONS = list(map(read_expression, ["7", "[MAX 2 9 ]", "[MIN [MAX 1 5 ] 3 0 [SM 9 9 ] ]", "[MED 1 2 2 ]"]))


def test_accuracy_by_depth_and_length():
    for predictions in ([], ["1"], ["1", "2", "3", "x"]):
        with pytest.raises(ValueError, match="prediction|zip"):
            score_listops(predictions, EXPRESSIONS)
    scores = score_listops(["7", "9", "3", "1"], EXPRESSIONS)
    assert json.loads(json.dumps(scores)) == scores
    assert (scores["accuracy"], scores["num_expressions"]) == (0.5, 4)
    by_depth = {depth: (group["correct"], group["total"]) for depth, group in scores["by_depth"].items()}
    by_length = {length: (group["correct"], group["total"]) for length, group in scores["by_length"].items()}
    assert by_depth == {"0": (1, 1), "1": (1, 2), "2": (0, 1)} and by_length == {"1-10": (2, 3), "11-20": (0, 1)}
    assert scores["by_depth"]["1"]["accuracy"] == 0.5


def test_scores_of_gold_trees_and_baselines():
    expressions = [expression for expression in generate_listops(100, seed=2) if expression.depth > 1]
    gold = [expression.gold_tree() for expression in expressions]
    trees = [InducedTree.from_spans(tree.words, tree.spans()) for tree in gold]
    scores = score_listops_trees(trees, expressions)
    assert scores["induced"] == pytest.approx({"f1": 1, "list_recall": 1})
    assert scores["upper bound"]["f1"] == pytest.approx(1)
    assert scores["left branching"]["f1"] > scores["right branching"]["f1"]
    assert scores["left branching"]["list_recall"] < 0.2
