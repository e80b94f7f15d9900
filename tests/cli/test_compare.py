import json

import pytest

from onlstm_hf.cli.main import main

GOLD = """\
( (S (NP (DT The) (JJ old) (NN cat)) (VP (VBD saw) (NP (CD 3) (NNS dogs))) (. .)) )
( (S (NP (DT the) (NN dog)) (VP (VBD ran))) )
"""
TREES = ["((the (old cat)) (saw (3 dogs)))", "(the (dog ran))"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold.mrg").write_text(GOLD)
    (tmp_path / "trees.txt").write_text("\n".join(TREES) + "\n")
    records = [json.dumps({"words": [], "brackets": tree}) for tree in TREES]
    (tmp_path / "trees.jsonl").write_text("\n".join(records) + "\n")
    return tmp_path


@pytest.mark.parametrize("trees", ["trees.txt", "trees.jsonl"])
def test_json_lists_shared_crossing_and_missed_constituents(files, trees, run):
    first, second = map(json.loads, run("compare", trees, "gold.mrg", "--format", "jsonl").splitlines())
    assert first["shared"] == [[0, 3], [3, 6], [4, 6]] and first["crossing"] == first["missed"] == []
    assert first["f1"] == pytest.approx(6 / 7)  # (old cat) is not gold
    assert (second["f1"], second["crossing"], second["missed"]) == (0, [[1, 3]], [[0, 2]])


def test_the_table_has_means_and_baselines(files, run):
    shown = run("compare", "trees.txt", "gold.mrg")
    rows = {line.split(maxsplit=2)[2]: line.split()[:2] for line in shown.splitlines()[-4:]}
    assert rows["these trees"] == [f"{100 * (6 / 7 + 0) / 2:.1f}", f"{100 * 2 * 3 / 9:.1f}"]
    assert {"left branching", "right branching", "balanced"} < rows.keys()


def test_unlabelled_gold_trees_and_a_picture(files, run, error_of):
    arguments = ["compare", "trees.txt", "trees.txt", "--format", "tree", "--figure", "two.svg", "--sentence", 2]
    assert "--preset unlabelled" in error_of(*arguments)
    assert "F1 100.0" in run(*arguments, "--preset", "unlabelled")
    picture = (files / "two.svg").read_text()
    assert "dog" in picture and "1 of 1 constituents are gold" in picture


def test_a_currency_sign_that_the_preset_drops_is_dropped_from_both_trees(files, run):
    (files / "gold.mrg").write_text("(S (NP It) (VP (VBD cost) (NP (QP ($ $) (CD 4) (NN m)) (-NONE- *U*))) (. .))")
    (files / "trees.txt").write_text("(It (cost ($ (4 m))))\n")
    record = json.loads(run("compare", "trees.txt", "gold.mrg", "--format", "jsonl"))
    assert record["words"] == ["It", "cost", "4", "m"]


@pytest.mark.parametrize(
    ("trees", "options", "message"),
    [
        ("(the (old cat))\n", [], "1 trees, but gold.mrg has 2"),
        ("((the (old cat)) (saw (4 dogs)))\n(the (dog ran))\n", [], "sentence 1: word 4 is '4'"),
        ("(the\n", [], "line 1 of trees.txt is no tree"),
        ('{"words": []}\n', [], "is no tree ('brackets')"),
        ("\n".join(TREES), ["--sentence", "3"], "there are 2 sentences"),
        ("\n".join(TREES), ["--figure", "two.jpg"], "must end in .svg, .png"),
    ],
)
def test_mismatched_files_are_errors(files, trees, options, message, capsys):
    (files / "trees.txt").write_text(trees)
    assert main(["compare", "trees.txt", "gold.mrg", *options]) == 1
    written = capsys.readouterr()
    assert message in written.err and written.out == ""
