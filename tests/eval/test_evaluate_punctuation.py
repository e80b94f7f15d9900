import gzip
from pathlib import Path

import pytest

from eval import evaluate_ordinary_text, evaluate_punctuation
from eval.evaluate_punctuation import read_with_marks
from onlstm_hf.trees.tree_files import SentenceDistances, write_tree_file
from onlstm_hf.utils.checkpoints import load_checkpoint
from tests.conftest import PROJECT_ROOT

RELEASED = PROJECT_ROOT / "model_cards" / "onlstm-ptb-small-distilled"
TREES = """\
( (S (`` ``) (NP (DT The) (NN cat)) (, ,) (SBAR (WHNP (WDT which)) (-NONE- *T*-1) (VP (VBD sat))) (, ,)
  (VP (VBD paid) ($ $) (CD 5)) (. .)) )
( (S (-LRB- -LRB-) (X x) (-RRB- -RRB-)) )
( (. .) )
"""


@pytest.fixture
def treebank(tmp_path):
    (tmp_path / "trees.mrg").write_text(TREES)
    return str(tmp_path / "trees.mrg")


def test_marks_are_found_at_punctuation_leaves(treebank):
    ((gold, marks),) = read_with_marks([treebank], None)
    assert [tree.words for tree in gold] == [("the", "cat", "which", "sat", "paid", "N"), ("x",)]
    assert marks == [[True, False, True, False, True, False], [True]]


def test_a_cue_splits_at_marks(run, treebank, tmp_path):
    sentences = [("the", "cat", "which", "sat", "paid", "N"), ("x",)]
    distances = [[[0.9, 0.5, 0.4, 0.3, 0.2, 0.1], [0.5]]]
    write_tree_file(tmp_path / "a.jsonl.xz", SentenceDistances(sentences, {None: distances[0]}))
    options = ["--treebank", treebank, "--strengths", 0, 4]
    results, printed = run(evaluate_punctuation, tmp_path / "a.jsonl.xz", *options)
    scores = results["models"][0]["sentence_f1"]["none"]
    assert results["sentences_with_marks"] == 0.5
    # three of four induced constituents are gold, all three gold ones are found; one-word sentences have F1 1
    assert scores["0"] < scores["4"] == pytest.approx((6 / 7 + 1) / 2)
    assert "k = 4" in printed


def test_trees_built_with_one_rule_are_refused(refusal, treebank, tmp_path):
    trees = SentenceDistances([("the", "cat", "sat"), ("x",)], {None: [[0.0, 1.0, 2.0], [0.0]]}, branching_bias="none")
    write_tree_file(tmp_path / "grammar.jsonl.xz", trees)
    error = refusal(evaluate_punctuation, tmp_path / "grammar.jsonl.xz", "--treebank", treebank)
    assert "built with one rule only" in error


def test_scores_are_averaged_over_files(run, treebank, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    first, *others = Path(treebank).read_text().splitlines(keepends=True)
    (folder / "a.mrg.gz").write_bytes(gzip.compress("".join([first.rstrip("\n"), "\n", others[0]]).encode()))
    (folder / "b.mrg").write_text("".join(others[1:]))
    scores = []
    for name in ("files", "files/a.mrg.gz", "files/b.mrg"):
        results, _ = run(evaluate_punctuation, RELEASED, "--treebank", tmp_path / name)
        scores.append(results["models"][0]["sentence_f1"]["right"]["4"])
    assert scores[0] == pytest.approx((scores[1] + scores[2]) / 2) and scores[1] != scores[2]


def test_sentences_become_ordinary_text(treebank):
    pytest.importorskip("nltk")
    first, second, third = evaluate_ordinary_text.ordinary_sentences(treebank, 9)
    assert first == '"The cat, which sat, paid $5.'
    assert (second, third) == ("(x)", ".")


def test_unknown_words_are_counted_among_the_words_of_the_tokenizer(run, treebank, tmp_path):
    pytest.importorskip("nltk")
    (tmp_path / "trees.mrg").write_text("( (S (NP (DT The) (NN cat)) (, ,) (VP (VBD paid) (NNP Zyx)) (. .)) )\n")
    results, _ = run(evaluate_ordinary_text, RELEASED, "--treebank", treebank)
    shares = {"words between spaces": 3 / 4, "words of the tokenizer": 1 / 4}  # The, cat, (comma) and Zyx.
    assert results["unknown_words"] == shares and "sentence_f1" not in results


def test_trees_of_ordinary_text_are_scored_where_its_words_are_those_of_the_treebank(run, tmp_path):
    pytest.importorskip("nltk")
    verb_phrase = "(VP (VB sell) (NP (JJ old) (NN stock)) (PP (IN in) (NP (NN May))))"
    sentence = f"(S (NP (PRP He)) (, ,) (VP (MD will) {verb_phrase}) (. .))"
    (tmp_path / "trees.mrg").write_text(f"( {sentence} )\n( (S (NP (PRP it's)) (VP (VBD paid)) (. .)) )\n")
    results, _ = run(evaluate_ordinary_text, RELEASED, "--treebank", str(tmp_path / "trees.mrg"), "--parse")
    assert results["num_scored_sentences"] == 1  # it's is two words of the tokenizer
    model, tokenizer = load_checkpoint(str(RELEASED))
    for setting, f1 in results["sentence_f1"].items():
        punctuation, rule = setting.split(", ")
        tree = model.parse("He, will sell old stock in May.", tokenizer, punctuation=punctuation, branching_bias=rule)
        gold = "(S He (VP will (VP sell (NP old stock) (PP in (NP May)))))"
        assert f1 == pytest.approx(tree.compare(gold).f1)
    assert len(set(results["sentence_f1"])) == 4
