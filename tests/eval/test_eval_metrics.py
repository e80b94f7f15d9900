import doctest
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlstm_hf.logic.scores import score_logic
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.baselines import baseline_trees
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import AS_WRITTEN, GoldTree, gold_trees_from_brackets
from tests.helpers.requirements import library

evaluate = library("evaluate")

METRICS = ("logical_inference", "minimal_pairs", "parsing_f1", "perplexity")
GOLD = "( (S (NP-SBJ (DT The) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .)) )"
NESTED = [["the", ["old", "cat"]], [["sat", "on"], "it"]]


@pytest.fixture(scope="module", autouse=True)
def project_folder(fresh_metric_modules, project_root):
    """Runs in the project's root."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project_root)
        yield


@pytest.fixture(scope="module")
def parsing_f1(project_folder):
    return evaluate.load("eval/parsing_f1")


@pytest.fixture(scope="module")
def perplexity(project_folder):
    return evaluate.load("eval/perplexity")


def expected_scores(predicted, gold=GOLD):
    return score_parses([predicted], [GoldTree.from_bracket(gold)]).to_dict()


@pytest.mark.parametrize(
    "tree",
    [
        "((the (old cat)) ((sat on) it))",
        "(S (NP (DT the) (NP (JJ old) (NN cat))) (VP (X (V sat) (P on)) (PRP it)))",
        NESTED,
        InducedTree.from_nested(NESTED),
        GoldTree.from_bracket("(S (NP (D the) (X (J old) (N cat))) (VP (X (V sat) (P on)) (P it)))"),
        [(0, 6), (0, 3), (1, 3), (3, 6), (3, 5)],
        [[np.int64(0), 3], [1, 3], [3, 6], [3, 5]],
    ],
    ids=["brackets", "labelled brackets", "nested", "induced", "gold", "spans", "spans without the sentence"],
)
def test_every_form_of_prediction_gives_the_same_scores(parsing_f1, tree):
    assert parsing_f1.compute(predictions=[tree], references=[GOLD]) == expected_scores(NESTED)


def test_nltk_trees_are_predictions_and_references(parsing_f1):
    nltk = library("nltk")
    predicted = nltk.Tree.fromstring("(X (X the (X old cat)) (X (X sat on) it))")
    gold = nltk.Tree.fromstring(GOLD, remove_empty_top_bracketing=True)
    assert parsing_f1.compute(predictions=[predicted], references=[gold]) == expected_scores(NESTED)


def test_leaves_of_nltk_trees_may_contain_any_characters(parsing_f1):
    nltk = library("nltk")
    gold = nltk.Tree("S", [nltk.Tree("NP", [nltk.Tree("NNP", ["New York"]), nltk.Tree("NN", ["(the city)"])]),
                           nltk.Tree("VP", [nltk.Tree("VB", ["sleeps"]), nltk.Tree("RB", ["never"])])])  # fmt: skip
    predicted = nltk.Tree("X", [nltk.Tree("X", ["new york", "(the city)"]), nltk.Tree("X", ["sleeps", "never"])])
    scores = parsing_f1.compute(predictions=[predicted], references=[gold])
    assert scores["sentence_f1"] == pytest.approx(1) and scores["label_recall"].keys() == {"NP", "VP"}


BRACKETED = r"(ROOT (S (NP (-LRB- -LRB-) (NN cats) (-RRB- -RRB-)) (VP (VBP eat) (CD 1\/2))))"


@pytest.mark.parametrize(
    ("predicted", "gold", "preprocessing", "labels"),
    [
        (BRACKETED, BRACKETED, "plain", {"NP", "VP"}),
        (BRACKETED.replace("-LRB-)", "-lrb-)"), BRACKETED, {"dropped_tags": [], "digits": "keep"}, {"NP", "VP"}),
        ("((The old cat) (sat (on it)) .)", GOLD, AS_WRITTEN, {"NP-SBJ", "VP", "PP"}),
        ("((The N2) (sat .))", GoldTree(("The", "N2", "sat", "."), (("NP", 0, 2), ("VP", 2, 4))), None, {"NP", "VP"}),
    ],
    ids=["as written", "other spelling of brackets", "cased words", "gold tree"],
)
def test_preprocessing_applies_to_gold_strings(parsing_f1, predicted, gold, preprocessing, labels):
    scores = parsing_f1.compute(predictions=[predicted], references=[gold], preprocessing=preprocessing)
    assert scores["corpus_f1"] == 1 and set(scores["label_recall"]) == labels


def test_flat_one_word_and_very_deep_trees(parsing_f1):
    flat = [[0, 6]]
    assert parsing_f1.compute(predictions=[flat], references=[GOLD])["evalb_precision"] == 1
    for nothing in ([], (), "[]"):
        with pytest.raises(ValueError, match="prediction 0: there is no tree"):
            parsing_f1.compute(predictions=[nothing], references=[GOLD])
    assert parsing_f1.compute(predictions=[[]], references=["(UH yes)"])["num_sentences"] == 1
    for word in ("yes", ["yes"], "(yes)"):
        assert parsing_f1.compute(predictions=[word], references=["(UH yes)"])["num_sentences"] == 1
    words = ["w"] * 5_000
    nested = "w"
    for word in words[1:]:
        nested = [word, nested]
    gold = GoldTree(tuple(words), ())
    assert parsing_f1.compute(predictions=[nested], references=[gold])["average_depth"] > 2_500


def test_batches_and_single_examples_add_up(parsing_f1):
    gold = [GOLD, "(S (NP (DT a) (NN cat)) (VP (VBZ sits)))", "(S (NP (PRP it)) (VP (VBD ran) (RB off)))"]
    predicted = [NESTED, "((a cat) sits)", [(1, 3)]]
    parsing_f1.add_batch(predictions=predicted[:2], references=gold[:2])
    parsing_f1.add(prediction=predicted[2], reference=gold[2])
    assert parsing_f1.compute() == parsing_f1.compute(predictions=predicted, references=gold)


def test_options_and_baselines_reach_the_scores(parsing_f1):
    gold = gold_trees_from_brackets([GOLD] * 3)
    options = {"length_limits": [5], "num_resamples": 0}
    scores = parsing_f1.compute(predictions=[NESTED] * 3, references=gold, baselines=True, seed=5, **options)
    assert scores["by_length"][0]["min_words"] == 6 and scores["sentence_f1_interval"] is None
    name = "random (uniform trees)"
    expected = score_parses(baseline_trees(name, gold, seed=5), gold, **options)
    assert scores["baselines"][name] == expected.to_dict()
    assert json.loads(json.dumps(scores)) == scores


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        (["((the old) cat"], [GOLD], "prediction 0: malformed brackets"),
        ([NESTED], ["(S (NP a)"], "reference 0: malformed brackets"),
        ([NESTED, [(0, 9)]], [GOLD, GOLD], "prediction 1: .*6 words"),
        ([NESTED], [["a", "b"]], "reference 0: a gold tree must be a bracket string, an nltk.Tree or a GoldTree"),
        (["((The (old cat)) ((sat on) it))"], [GOLD], "word 0 is predicted 'The', gold 'the'"),
        ([NESTED], [GOLD, GOLD], "Mismatch"),
        ("(a b)", GOLD, "predictions must be a list with one tree per sentence"),
        ([], [], "there must be trees"),
    ],
)
def test_parsing_f1_errors_name_the_tree(predictions, references, message):
    with pytest.raises(ValueError, match=message):
        evaluate.load("eval/parsing_f1", keep_in_memory=True).compute(predictions=predictions, references=references)


@pytest.fixture
def log_probabilities():
    generator = np.random.default_rng(0)
    return [np.log(generator.uniform(1e-4, 1, size)).tolist() for size in (7, 1, 300)]


def test_perplexity_is_over_all_tokens(perplexity, log_probabilities):
    everything = np.concatenate(log_probabilities)
    scores = perplexity.compute(predictions=log_probabilities)
    assert set(scores) == {"perplexity", "log_likelihood", "num_tokens"}
    assert scores["perplexity"] == pytest.approx(np.exp(-everything.mean()), rel=1e-12)
    assert scores["log_likelihood"] == pytest.approx(everything.sum(), rel=1e-12)
    assert scores["num_tokens"] == 308


def test_sentence_protocol_adds_the_mean_over_sentences(perplexity, log_probabilities):
    scores = perplexity.compute(predictions=log_probabilities, protocol="sentence")
    expected = [np.exp(-np.mean(sequence)) for sequence in log_probabilities]
    assert scores["perplexities"] == pytest.approx(expected)
    assert scores["mean_perplexity"] == pytest.approx(np.mean(expected))
    assert scores["perplexity"] == perplexity.compute(predictions=log_probabilities)["perplexity"]


def test_perplexity_per_word_and_bits_per_character(perplexity, log_probabilities):
    total = np.concatenate(log_probabilities).sum()
    scores = perplexity.compute(predictions=log_probabilities, num_words=[3, 1, 80], num_characters=[20, 5, 400])
    assert scores["word_perplexity"] == pytest.approx(np.exp(-total / 84))
    assert scores["bits_per_character"] == pytest.approx(-total / 425 / np.log(2))


def test_uniform_model_has_the_perplexity_of_its_vocabulary(perplexity):
    scores = perplexity.compute(predictions=np.full((4, 25), -np.log(10_000)).astype(np.float32))
    assert scores["perplexity"] == pytest.approx(10_000, rel=1e-5)


def test_impossible_token_makes_perplexity_infinite(perplexity):
    assert perplexity.compute(predictions=[[-1.0, -np.inf]])["perplexity"] == np.inf


@pytest.fixture(scope="module")
def minimal_pairs(project_folder):
    return evaluate.load("eval/minimal_pairs")


def share(flags):
    return sum(flags) / len(flags)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(-4, 0), st.integers(-4, 0), st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()),
        min_size=1,
    )
)
def test_accuracy_is_the_share_of_correct_pairs(minimal_pairs, items):
    scores = minimal_pairs.compute(
        predictions=[[float(better), float(worse)] for better, worse, *_ in items],
        conditions=[item[2] for item in items],
        groups=[item[3] for item in items],
        out_of_vocabulary=[item[4] for item in items],
    )

    def expected(members):
        known = [better > worse for better, worse, *_, unknown in members if not unknown]
        return {
            "accuracy": pytest.approx(share([better > worse for better, worse, *_ in members])),
            "num_pairs": len(members),
            "num_correct": sum(better > worse for better, worse, *_ in members),
            "num_ties": sum(better == worse for better, worse, *_ in members),
            "num_out_of_vocabulary": len(members) - len(known),
            "in_vocabulary_accuracy": pytest.approx(share(known)) if known else None,
        }

    by_condition, by_group = scores.pop("by_condition"), scores.pop("by_group")
    assert scores == expected(items)
    for column, by_name in ((2, by_condition), (3, by_group)):
        names = {item[column] for item in items}
        assert by_name == {name: expected([item for item in items if item[column] == name]) for name in names}


def test_three_sentences_give_three_comparisons_and_count_once_overall(minimal_pairs):
    scores = minimal_pairs.compute(
        predictions=[[-3.0, -2.0, -4.0], [-3.0, -4.0, -3.0], [-1.0, -2.0]],
        conditions=["npi", "npi", "agreement"],
        out_of_vocabulary=[[True, False, False], True, False],
    )
    counts = {name: (row["num_correct"], row["num_pairs"]) for name, row in scores["by_condition"].items()}
    assert counts == {
        "npi (grammatical vs. intrusive)": (1, 2),
        "npi (intrusive vs. ungrammatical)": (1, 2),
        "npi (grammatical vs. ungrammatical)": (1, 2),
        "agreement": (1, 1),
    }
    unknown = [row["num_out_of_vocabulary"] for row in scores["by_condition"].values()]
    assert unknown == [2, 1, 1, 0]
    assert (scores["num_correct"], scores["num_pairs"], scores["num_ties"]) == (2, 3, 1)
    assert scores["in_vocabulary_accuracy"] == 1


def test_impossible_sentences_are_compared_like_others(minimal_pairs):
    scores = minimal_pairs.compute(predictions=[[-1.0, -np.inf], [-np.inf, -np.inf]])
    assert scores == {"accuracy": 0.5, "num_pairs": 2, "num_correct": 1, "num_ties": 1}


@pytest.mark.parametrize(
    ("metric", "arguments", "message"),
    [
        ("perplexity", {"predictions": [[-1.0], [0.5]]}, "sequence 1: 0.5 is not a natural log probability"),
        ("perplexity", {"predictions": [[-1.0, float("nan")]]}, "sequence 0: nan is not a natural log probability"),
        ("perplexity", {"predictions": [[-1.0], []]}, "sequence 1 has no tokens"),
        ("perplexity", {"predictions": []}, "nothing to score"),
        ("perplexity", {"predictions": ["the cat"]}, "Got a string but expected a list"),
        ("perplexity", {"protocol": "line"}, 'protocol must be "stream" or "sentence"'),
        ("perplexity", {"num_words": [1]}, "num_words must have one count per sequence: got 1 for 2"),
        ("perplexity", {"num_characters": [0, 0]}, "num_characters must be counts"),
        ("minimal_pairs", {"predictions": []}, "nothing to score"),
        ("minimal_pairs", {"predictions": [[-1.0, -2.0], [-1.0]]}, "item 1 has 1 log probabilities, expected"),
        ("minimal_pairs", {"predictions": [[-1.0, 0.5]]}, "item 0: 0.5 is not a log probability"),
        ("minimal_pairs", {"predictions": [[-1.0, float("nan")]]}, "item 0: nan is not a log probability"),
        ("minimal_pairs", {"predictions": [-1.0, -2.0]}, "Expected format"),
        ("minimal_pairs", {"conditions": ["a"]}, "conditions must have one entry per item: got 1 for 2 items"),
        ("minimal_pairs", {"out_of_vocabulary": [True]}, "out_of_vocabulary must have one entry per item"),
        ("minimal_pairs", {"out_of_vocabulary": [[True, False], False]}, "a list of 1, but that of item 0"),
    ],
)
def test_metrics_of_log_probabilities_refuse_invalid_inputs(metric, arguments, message):
    arguments = {"predictions": [[-1.0, -2.0], [-3.0, -2.0]], **arguments}
    with pytest.raises(ValueError, match=message):
        evaluate.load(f"eval/{metric}", keep_in_memory=True).compute(**arguments)


def test_logical_inference_scores_batches_and_single_pairs_as_a_whole(project_folder):
    metric = evaluate.load("eval/logical_inference")
    metric.add_batch(predictions=["<", "#"], references=["<", "v"], num_operators=[0, 12])
    metric.add(prediction="=", reference="=", num_operators=12)
    assert metric.compute() == score_logic(["<", "#", "="], ["<", "v", "="], [0, 12, 12])
    with pytest.raises(ValueError, match="prediction 0 must be one of"):
        metric.compute(predictions=["~"], references=["<"], num_operators=[1])


@pytest.mark.parametrize("name", METRICS)
def test_examples_of_the_card_run(name, project_root):
    results = doctest.testfile(str(project_root / "eval" / name / "README.md"), module_relative=False)
    assert results.attempted > 5 and results.failed == 0
