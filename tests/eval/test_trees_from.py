"""`evaluate_parsing.py --trees-from`: the same scores without weights."""

from pathlib import Path

import pytest
from scipy.stats import spearmanr

from eval import evaluate_parsing
from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.averaging import average_trees
from onlstm_hf.trees.baselines import left_branching_tree
from onlstm_hf.trees.distances import distances_of_tree
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file, write_tree_file
from onlstm_hf.trees.treebank import read_treebank
from tests.helpers.command_line import TREES
from tests.helpers.tiny_models import KINDS
from training.language_models.validation import distances_of_layers

MODELS = {"onlstm1": ("onlstm", {"chunk_size": 2}), "onlstm2": ("onlstm", {"chunk_size": 4}), "prpn": ("prpn", {})}


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory, tokenizer):
    """Three checkpoints and their tree files in the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("project"))
        Path("gold.mrg").write_text(TREES)
        gold = read_treebank("gold.mrg")
        for seed, (name, (kind, options)) in enumerate(MODELS.items()):
            model = KINDS[kind].make(vocab_size=len(tokenizer), eos_token_id=0, num_hidden_layers=2, **options)
            model.save_pretrained(name)
            tokenizer.save_pretrained(name)
            words = [list(tree.words) for tree in gold]
            write_tree_file(f"{name}.jsonl.xz", distances_of_layers(model, tokenizer, words, seed=seed))
        yield


@pytest.fixture
def evaluate(run):
    """Returns the results and the printed output, without the names of the models."""

    def evaluate(*options):
        results, printed = run(evaluate_parsing, *options, "--treebank", "gold.mrg")
        return results, printed.partition("\n")[2]

    return evaluate


@pytest.mark.parametrize("bias", ["right", "none"])
@pytest.mark.parametrize(
    ("models", "layer"),
    [
        (("onlstm1", "onlstm2"), "all"),
        (("onlstm1", "onlstm2"), "0"),
        (("onlstm1", "prpn"), "all"),
        (("onlstm1", "prpn"), "own"),
    ],
)
def test_scores_equal_those_of_the_checkpoints(evaluate, bias, models, layer):
    options = ["--ensemble", "--branching-bias", bias, "--layer", layer]
    files = [f"{model}.jsonl.xz" for model in models]
    expected, printed = evaluate(*models, *options)
    found, printed_again = evaluate("--trees-from", *files, *options)
    combined, printed_combined = evaluate(models[0], "--trees-from", files[1], *options)
    assert printed_again == printed_combined == printed
    for key in ("others", "summary", "protocol"):
        assert found[key] == combined[key] == expected[key]
    for name in ("scores", "num_parameters"):
        assert [model[name] for model in found["models"]] == [model[name] for model in expected["models"]]
    assert [model["seed"] for model in found["models"]] == [[*MODELS].index(model) for model in models]
    if layer == "own":
        layers = [list(model["scores"]["all"]) for model in found["models"]]
        assert layers == [["layer 2 (--layer 1)"], ["induced trees"]]


@pytest.mark.parametrize("bias", ["right", "none"])
def test_trees_without_distances_do_not_depend_on_the_rule(evaluate, bias):
    gold = read_treebank("gold.mrg")
    trees = [left_branching_tree(tree.words) for tree in gold]
    stored = [distances_of_tree(tree, "none") for tree in trees]
    sentences = [tree.words for tree in gold]
    write_tree_file("parser.jsonl.xz", SentenceDistances(sentences, {None: stored}, branching_bias="none"))
    files = ["parser.jsonl.xz", "prpn.jsonl.xz"]
    options = ["--ensemble", "--ties", "right", "--branching-bias", bias]
    results, _ = evaluate("--trees-from", *files, *options)
    expected = score_parses(trees, gold)
    assert results["models"][0]["scores"]["all"]["induced trees"]["sentence_f1"] == expected.sentence_f1
    pairs = zip(trees, read_tree_file("prpn.jsonl.xz").trees(branching_bias=bias), strict=True)
    average = score_parses([average_trees(pair, ties="right") for pair in pairs], gold)
    assert results["others"]["all"]["ensemble of 2, right ties"]["sentence_f1"] == average.sentence_f1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give checkpoints, or tree files with --trees-from"),
        (["--trees-from", "nothing.xz"], "there is no file nothing.xz"),
        (["--trees-from", "gold.mrg"], "gold.mrg is no file of trees, or damaged"),
        (["--trees-from", "onlstm1.jsonl.xz", "--layer", "7"], "no distances of layer 7"),
        (["--trees-from", "prpn.jsonl.xz", "--layer", "0"], "no distances of layer 0"),
        (["--trees-from", "prpn.jsonl.xz=2"], "weights of models need --ensemble"),
        (["--trees-from", "prpn.jsonl.xz=-2", "--ensemble"], "with a weight above 0, not prpn.jsonl.xz=-2"),
        (["--trees-from", "onlstm1.jsonl.xz", "--treebank", "other.mrg"], "has other sentences than other.mrg"),
    ],
)
def test_invalid_inputs_are_refused(refusal, options, message):
    Path("other.mrg").write_text(TREES.replace("cat", "bird"))
    assert message in refusal(evaluate_parsing, "--treebank", "gold.mrg", *options)


def test_all_layers_have_the_weight_of_their_model(evaluate):
    options = ["--ensemble", "--ties", "right"]
    results, _ = evaluate("--trees-from", "onlstm1.jsonl.xz", "prpn.jsonl.xz=2.5", *options)
    stored = [read_tree_file(name) for name in ("onlstm1.jsonl.xz", "prpn.jsonl.xz")]
    trees = [each.trees(layer) for each in stored for layer in each.by_layer]
    weighted = [average_trees(own, [1, 1, 2.5], ties="right") for own in zip(*trees, strict=True)]
    found = results["others"]["all"]["ensemble of 3, weighted, right ties"]["sentence_f1"]
    assert found == score_parses(weighted, read_treebank("gold.mrg")).sentence_f1
    assert results["weights"] == [1, 2.5]


def test_agreement_is_correlated_with_the_f1(evaluate):
    files = ["onlstm1.jsonl.xz", "onlstm2.jsonl.xz", "prpn.jsonl.xz"]
    results, printed = evaluate("--trees-from", *files, "--agreement")
    gold = read_treebank("gold.mrg")
    stored = [read_tree_file(name) for name in files]
    trees = [each.trees(layer) for each in stored for layer in each.by_layer]
    agreement = tree_agreement(trees)

    found = results["agreement"]
    rows = found["parsers"]
    assert [row["model"] for row in rows] == [files[0], files[0], files[1], files[1], files[2]]
    assert [row["sentence_f1"] for row in rows] == [score_parses(each, gold).sentence_f1 for each in trees]
    assert rows[0]["all others"] == pytest.approx(agreement[0, 1:].mean())
    f1, with_all = ([row[name] for row in rows] for name in ("sentence_f1", "all others"))
    assert found["rank_correlation"]["all others"]["all"] == pytest.approx(spearmanr(f1, with_all).statistic)
    # Two seeds are too few for a rank correlation.
    assert found["rank_correlation"]["all others"]["layer 1 (--layer 0)"] is None
    assert "rank correlation with F1: all" in printed
