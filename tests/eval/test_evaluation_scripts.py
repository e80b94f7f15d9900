import csv
import gzip
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from eval import evaluate_lm, evaluate_ngrams, evaluate_parsing
from eval.adaptation.cache_pointer import CachePointer
from eval.adaptation.dynamic_evaluation import DynamicEvaluation, adapted_log_probabilities, gradient_root_mean_squares
from eval.evaluate_lm import mixed_log_probabilities, mixture_weights
from eval.report import perplexities
from eval.task import describe_checkpoint
from onlstm_hf import InducedTree, ONLSTMForCausalLM, build_word_tokenizer
from onlstm_hf.scoring.kneser_ney import KneserNeyNGrams
from onlstm_hf.scoring.parsing_scores import mean_f1_interval, score_baselines, score_parses
from onlstm_hf.scoring.stream import encode_sentence_stream, stream_log_probabilities
from onlstm_hf.trees.averaging import average_trees
from onlstm_hf.trees.treebank import AS_WRITTEN, PRESETS, GoldTree, read_treebank
from onlstm_hf.utils import iteration
from tests.helpers.command_line import TREES
from tests.helpers.log_probabilities import token_log_probabilities
from tests.helpers.requirements import library
from tests.helpers.tiny_models import KINDS

library("datasets")
library("evaluate")
pytestmark = pytest.mark.usefixtures("fresh_metric_modules")

LINES = ["the cat sat on the mat", "it saw N dogs", "dogs", "", "the old dog that the cat saw sat on the old mat"]
SENTENCES = [line for line in LINES if line]


def save(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def checkpoint(checkpoint):
    return str(checkpoint)


@pytest.fixture(scope="module")
def other_checkpoint(tmp_path_factory, tokenizer):
    """A model with the same vocabulary and other weights."""
    other = KINDS["onlstm"].make(vocab_size=len(tokenizer), eos_token_id=0, num_hidden_layers=2)
    return save(tmp_path_factory.mktemp("other"), other, tokenizer), other


def row_of(printed, name):
    """Returns the row of a printed table that begins with a name."""
    (row,) = [line for line in printed.splitlines() if line.startswith(name)]
    return row


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return str(path)


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "trees.mrg"
    path.write_text(TREES, encoding="utf-8")
    return str(path)


@pytest.fixture
def dataset(tmp_path):
    """A dataset folder with the lines in `validation` and in reverse in `test`, and with trees in both."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    trees = [re.sub(r"^(.*) (\S+)$", r"(X \1) \2", line) for line in SENTENCES]
    rows = [json.dumps({"text": line, "tree": f"(S {tree})"}) for line, tree in zip(SENTENCES, trees, strict=True)]
    (folder / "validation.jsonl").write_text("\n".join(rows))
    (folder / "test.jsonl").write_text("\n".join(reversed(rows)))
    return str(folder)


def log_likelihood(model, tokenizer):
    """Reads the sentences with an `<eos>` before the first and after each."""
    ids = [0, *(token for line in SENTENCES for token in [*tokenizer(line)["input_ids"], 0])]
    return sum(token_log_probabilities(model, ids)), len(ids) - 1


def test_perplexity_equals_reading_token_by_token(run, checkpoint, model, tokenizer, text_file, monkeypatch):
    monkeypatch.setattr(perplexities, "PENN_TREEBANK_LINES", [len(SENTENCES)])
    results, table = run(evaluate_lm, checkpoint, "--files", text_file)
    scores = results["scores"][text_file]
    total, count = log_likelihood(model, tokenizer)
    assert scores["log_likelihood"] == pytest.approx(total, abs=1e-4)
    assert scores["num_tokens"] == count
    assert scores["perplexity"] == pytest.approx(math.exp(-total / count), rel=1e-5)
    assert scores["word_perplexity"] == pytest.approx(scores["perplexity"])
    num_characters = sum(len(line) + 1 for line in SENTENCES)
    assert scores["bits_per_character"] == pytest.approx(-total / math.log(2) / num_characters, rel=1e-5)
    assert results["command"].startswith("python eval/evaluate_lm.py ") and "--files" in results["command"]
    assert {"onlstm_hf", "torch", "transformers", "python"} <= set(results["versions"])
    assert row_of(table, text_file).split()[1:3] == [str(count), f"{scores['perplexity']:.2f}"]
    assert "Penn Treebank test (published)" in table and "56.17" in table and "58.29" in table


def test_rows_of_the_stream_start_from_an_empty_state(run, checkpoint, model, tokenizer, text_file):
    results, _ = run(evaluate_lm, checkpoint, "--files", text_file, "--batch-size", 4)
    scores = results["scores"][text_file]
    total, count = log_likelihood(model, tokenizer)
    assert scores["num_tokens"] == count
    assert scores["log_likelihood"] != pytest.approx(total, abs=1e-3)


def test_every_split_of_a_dataset_and_every_file_is_a_text(run, checkpoint, dataset, text_file):
    _, by_split = run(evaluate_lm, checkpoint, "--dataset", dataset, "--split", "validation", "test")
    _, by_file = run(evaluate_lm, checkpoint, "--files", text_file, text_file)
    validation, test = (row_of(by_split, f"{split} ").split() for split in ("validation", "test"))
    text = next(line.split() for line in by_file.splitlines() if line.startswith(text_file))
    assert validation[1:] == text[1:]
    assert test[1] == text[1] and test[2] != text[2]


@pytest.mark.parametrize("adaptation", [[], ["--adapt", "cache", "--cache-size", "9"]], ids=["plain", "adapted"])
def test_mixture_weights_are_tuned_on_a_text(
    run, tmp_path, checkpoint, other_checkpoint, model, tokenizer, text_file, adaptation
):
    (other, second), test = other_checkpoint, tmp_path / "test.txt"
    test.write_text("\n".join(LINES[:2]))
    options = ["--files", text_file, test, "--mix", "--tune", text_file, "--tune-tokens", 12, *adaptation]
    results, printed = run(evaluate_lm, checkpoint, other, *options)
    mixture = results["mixture"]
    assert [part["model"] for part in mixture["weights"]] == [checkpoint, other]
    assert mixture["tuning"] == {"text": text_file, "num_tokens": 12}
    if not adaptation:
        weights = torch.tensor([part["weight"] for part in mixture["weights"]])
        for text in (text_file, str(test)):
            stream = encode_sentence_stream(tokenizer, [line for line in Path(text).read_text().splitlines() if line])
            own = torch.stack([stream_log_probabilities(each, stream) for each in (model, second)])
            mixed = mixed_log_probabilities(own, weights)
            assert mixture["scores"][text]["log_likelihood"] == pytest.approx(mixed.sum().item(), rel=1e-5)
            if text == text_file:
                assert weights.tolist() == pytest.approx(mixture_weights(own[:, :12]).tolist())
    row = row_of(printed, f"{text_file}, mixture of 2 ")
    assert f" {mixture['scores'][text_file]['perplexity']:.2f} " in row
    assert "standard deviation" not in printed


def test_models_with_other_vocabularies_are_not_mixed(refusal, tmp_path, checkpoint, text_file):
    words = build_word_tokenizer([*LINES, "bird"], pad_token="<eos>")
    other = save(tmp_path / "other", KINDS["onlstm"].make(vocab_size=len(words)), words)
    error = refusal(evaluate_lm, checkpoint, other, "--files", text_file, "--mix", "--tune", text_file)
    assert f"{other} and {checkpoint} predict other tokens" in error


def test_several_models_have_rows_and_a_mean(run, checkpoint, other_checkpoint, text_file):
    models = [checkpoint, other_checkpoint[0]]
    results, table = run(evaluate_lm, *models, "--files", text_file)
    results = results["models"]
    assert [result["model"] for result in results] == models
    perplexities = [result["scores"][text_file]["perplexity"] for result in results]
    assert perplexities[0] != perplexities[1]
    spread = {"mean": statistics.mean(perplexities), "standard deviation": statistics.stdev(perplexities)}
    for name, perplexity in [*zip(models, perplexities, strict=True), *spread.items()]:
        assert f" {perplexity:.2f} " in row_of(table, f"{text_file}, {name} ")
    one, _ = run(evaluate_lm, models[1], "--files", text_file)
    assert one["scores"] == results[1]["scores"]


def test_the_best_cache_on_validation_text_scores_all_texts(run, tmp_path, checkpoint, model, tokenizer, text_file):
    other = tmp_path / "other.txt"
    other.write_text("dogs saw dogs\ndogs saw N dogs\n" * 5)
    arguments = ["--files", text_file, other, "--adapt", "cache", "--tune", other, "--tune-tokens", 20]
    grid = ["--cache-size", 2, 30, "--cache-flatness", 0, 0.5, "--cache-weight", 0.1, 0.4]
    results, table = run(evaluate_lm, checkpoint, *arguments, *grid)
    adapted = results["adaptation"]
    caches = [CachePointer(*setting) for setting in product((2, 30), (0.0, 0.5), (0.1, 0.4))]
    streams = {
        text_file: encode_sentence_stream(tokenizer, SENTENCES),
        str(other): encode_sentence_stream(tokenizer, other.read_text().splitlines()),
    }
    found = adapted_log_probabilities(model, streams[str(other)][:20], None, caches)
    losses = [-log_probabilities.mean().item() for log_probabilities in found]
    best = caches[losses.index(min(losses))]
    assert adapted["settings"] == {f"cache_{name}": value for name, value in best._asdict().items()}
    assert adapted["tuning"]["text"] == str(other) and adapted["tuning"]["num_tokens"] == 20
    assert [row["perplexity"] for row in adapted["tuning"]["grid"]] == pytest.approx(list(map(math.exp, losses)))
    for name, stream in streams.items():
        (found,) = adapted_log_probabilities(model, stream, None, [best])
        assert adapted["scores"][name]["log_likelihood"] == pytest.approx(found.sum().item())
        assert adapted["scores"][name]["num_tokens"] == results["scores"][name]["num_tokens"] == len(stream)
        perplexity = math.exp(-found.mean().item())
        assert adapted["scores"][name]["word_perplexity"] == pytest.approx(perplexity)
        assert adapted["scores"][name]["unknown_words"] == results["scores"][name]["unknown_words"]
        assert f"{name}, cache" in table and f"{perplexity:.2f}" in table
    assert f"the best of 8 on 20 tokens of {other}" in table


def test_given_settings_need_no_tuning_text(run, checkpoint, text_file):
    settings = ["--adapt", "dynamic-sgd", "--learning-rate", 0.01, "--decay", 0.1, "--segment-length", 4]
    results, printed = run(evaluate_lm, checkpoint, "--files", text_file, *settings)
    assert results["adaptation"]["tuning"] is None
    assert printed.endswith("(Krause et al. 2018): learning_rate 0.01, decay 0.1, segment_length 4\n")


@pytest.mark.parametrize("method", ["dynamic-sgd", "dynamic-rms", "dynamic-sgd-cache", "dynamic-rms-cache"])
def test_settings_of_dynamic_evaluation_and_cache_are_chosen_together(
    run, checkpoint, model, tokenizer, text_file, method
):
    grid = {"learning_rate": [1e38, 0.01, 0.1], "decay": [0.1], "segment_length": [4]}
    if "rms" in method:
        grid["epsilon"] = [2.0]
    if "cache" in method:
        grid |= {"cache_size": [9], "cache_flatness": [0.3], "cache_weight": [0.1, 0.4]}
    settings = [word for name, tried in grid.items() for word in (f"--{name.replace('_', '-')}", *tried)]
    settings += ["--training-text", text_file] if "rms" in method else []
    arguments = ["--files", text_file, "--adapt", method, "--tune", text_file]
    results, printed = run(evaluate_lm, checkpoint, *arguments, *settings)
    adapted = results["adaptation"]

    stream = encode_sentence_stream(tokenizer, SENTENCES)
    gradient_rms = gradient_root_mean_squares(model, stream) if "rms" in method else None
    candidates = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    expected = []
    for candidate in candidates:
        perplexity = None  # of one that diverges
        if candidate["learning_rate"] < 1:
            dynamic = DynamicEvaluation(candidate["learning_rate"], 0.1, 4, candidate.get("epsilon", 1.0))
            weight = candidate.get("cache_weight", 0.0)
            caches = [CachePointer(9, 0.3, weight)]
            (found,) = adapted_log_probabilities(model, stream, dynamic, caches, gradient_rms)
            perplexity = pytest.approx(math.exp(-found.mean().item()), rel=1e-5)
        expected.append(candidate | {"perplexity": perplexity})
    assert adapted["tuning"]["grid"] == expected
    best = min(row["perplexity"] for row in adapted["tuning"]["grid"] if row["perplexity"])
    assert adapted["settings"] | {"perplexity": pytest.approx(best)} in adapted["tuning"]["grid"]
    assert adapted["scores"][text_file]["perplexity"] == pytest.approx(best, rel=1e-5)
    assert f"{text_file}, {method}" in printed


def test_ngrams_have_a_row_for_each_order(run, refusal, tmp_path, text_file):
    other = tmp_path / "other.txt"
    other.write_text(f"{LINES[0]} zyxwv\n")
    arguments = ["--training-text", text_file, "--files", text_file, other, "--order", 1, 2]
    results, printed = run(evaluate_ngrams, *arguments)
    tokenizer = build_word_tokenizer(SENTENCES)
    stream = encode_sentence_stream(tokenizer, SENTENCES)
    for order, model in enumerate(results["models"], start=1):
        ngrams = KneserNeyNGrams(stream, len(tokenizer), tokenizer.eos_token_id, order)
        assert model["model"] == f"Kneser-Ney {order}-grams" and model["num_parameters"] == ngrams.num_ngrams
        expected = math.exp(-ngrams.log_probabilities(stream).mean())
        assert model["scores"][text_file]["perplexity"] == pytest.approx(expected)
        assert model["scores"][text_file]["unknown_words"] == 0
        assert model["scores"][str(other)]["unknown_words"] == 1 / (1 + len(LINES[0].split()))
    assert f"{text_file}, Kneser-Ney 2-grams" in printed

    (tmp_path / "empty.txt").write_text("\n")
    error = refusal(evaluate_ngrams, "--training-text", text_file, "--files", tmp_path / "empty.txt")
    assert "empty.txt is empty" in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--tune {text}", "--tune needs --adapt"),
        ("--decay 0.1", "--decay needs --adapt"),
        ("--adapt cache", "30 settings to choose from need --tune TEXT"),
        ("--adapt cache --decay 0.1", "--decay is no setting of --adapt cache"),
        ("--adapt cache --tune valid.txt", "--tune valid.txt is none of the texts"),
        ("--adapt cache --tune-tokens 9", "--tune-tokens needs --tune TEXT"),
        ("--adapt dynamic-rms --tune {text}", "needs the training text: give --training-text"),
        ("--adapt dynamic-sgd --tune {text} --training-text {text}", "--training-text is no setting"),
        ("--mix --tune {text}", "--mix needs several models"),
        ("another --mix", "and --tune TEXT"),
        ("another --mix --tune valid.txt", "--tune valid.txt is none of the texts"),
        ("another --mix --tune {text} --decay 0.1", "--decay needs --adapt"),
    ],
)
def test_options_of_adaptation_that_do_not_fit_are_refused(refusal, text_file, arguments, expected):
    arguments = [argument.format(text=text_file) for argument in arguments.split()]
    assert expected in refusal(evaluate_lm, "no-model", *arguments, "--files", text_file)


@pytest.mark.parametrize(
    "setting",
    ["--cache-size 0", "--cache-flatness -1", "--cache-weight 1.5", "--decay 2", "--learning-rate nan", "--epsilon 0"],
)
def test_settings_out_of_range_are_refused(capsys, setting):
    with pytest.raises(SystemExit):
        evaluate_lm.main(["no-model", "--files", "text.txt", *setting.split()])
    assert f"argument {setting.split()[0]}: must be" in capsys.readouterr().err


def as_json(scores):
    """Converts scores as JSON does."""
    return json.loads(json.dumps(scores.to_dict()))


@pytest.mark.parametrize("branching_bias", ["right", "none"])
def test_scores_match_the_induced_trees_which_are_written(
    run, tmp_path, checkpoint, model, tokenizer, treebank, branching_bias
):
    path = tmp_path / "trees.jsonl"
    arguments = ["--branching-bias", branching_bias, "--note", "of the sample", "--sentences-read", "no"]
    results, printed = run(evaluate_parsing, checkpoint, "--treebank", treebank, "--trees", path, *arguments)
    assert "sentences read in training: no\n" in printed
    assert results["sentences_read"] == "no"
    gold = read_treebank(treebank)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [GoldTree.from_bracket(row["gold"], AS_WRITTEN) for row in rows] == gold
    for part, part_gold in (("all", gold), ("short", gold[:2])):
        sentences = [list(tree.words) for tree in part_gold]
        for layer in (0, 1):
            trees = model.parse(sentences, tokenizer, layer=layer, branching_bias=branching_bias)
            name = f"layer {layer + 1} (--layer {layer})"
            assert results["models"][0]["scores"][part][name] == as_json(score_parses(trees, part_gold))
            written = [InducedTree.from_bracket(row["induced"][checkpoint][name]) for row in rows]
            assert written[: len(trees)] == trees
        for name, expected in score_baselines(part_gold).items():
            assert results["others"][part][name] == as_json(expected)
    assert results["others"]["all"]["upper bound"]["sentence_f1"] < 1
    assert results["note"] == "of the sample"


def test_the_table_has_layers_baselines_and_published_figures(run, checkpoint, model, tokenizer, treebank):
    _, table = run(evaluate_parsing, checkpoint, "--treebank", treebank)
    gold = read_treebank(treebank)
    trees = model.parse([list(tree.words) for tree in gold], tokenizer, layer=1)
    scores, short_scores = score_parses(trees, gold), score_parses(trees[:2], gold[:2])
    row = row_of(table, "layer 2 (--layer 1)")
    f1, _, corpus_f1, short_f1, _, depth, *recalls = row.removeprefix("layer 2 (--layer 1)").split()
    expected = scores.sentence_f1, scores.corpus_f1, short_scores.sentence_f1
    assert [f1, corpus_f1, short_f1] == [f"{100 * value:.1f}" for value in expected]
    assert depth == f"{scores.average_depth:.1f}"
    frequent = sorted(scores.label_recall, key=lambda label: (-scores.label_recall[label].total, label))[:6]
    assert row_of(table, "trees ").split()[-len(frequent) :] == frequent
    assert recalls == [f"{100 * scores.label_recall[label].recall:.1f}" for label in frequent]
    for name in ("layer 1", "left branching", "right branching", "balanced", "random (uniform splits)", "upper bound"):
        assert f"\n{name} " in table
    (published,) = re.findall("ON-LSTM, layer 2 \\(published\\)(.*)", table)
    assert published.split() == ["47.7", "1.5", "49.4", "65.1", "1.7", "66.8"]
    assert "section 23" in table


def test_one_layer_and_no_short_sentences(run, tmp_path, checkpoint):
    long = tmp_path / "long.mrg"
    long.write_text("(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP " + "(NN mat) " * 9 + "))))")
    _, table = run(evaluate_parsing, checkpoint, "--treebank", long, "--layer", 0)
    assert "layer 1 (--layer 0)" in table and "--layer 1)" not in table
    assert "-" in row_of(table, "right branching  ").split()


def test_a_checkpoint_reads_the_treebank_once_for_all_layers(monkeypatch, checkpoint, treebank):
    passes, read = [], ONLSTMForCausalLM.syntactic_distances
    monkeypatch.setattr(
        ONLSTMForCausalLM, "syntactic_distances", lambda *a, **options: passes.append(options) or read(*a, **options)
    )
    assert evaluate_parsing.main([checkpoint, "--treebank", treebank, "--layer", "all", "--ensemble"]) == 0
    assert len(passes) == 1


def test_the_trees_of_layers_and_checkpoints_are_averaged(
    run, tmp_path, checkpoint, other_checkpoint, model, tokenizer, treebank
):
    trees = tmp_path / "trees.jsonl"
    gold = read_treebank(treebank)
    sentences = [list(tree.words) for tree in gold]
    folder, other = other_checkpoint
    for arguments, members, all_ties in (
        ([checkpoint, folder, "--layer", "1"], [(model, 1), (other, 1)], ["random", "right"]),
        ([checkpoint, folder], [(model, 0), (model, 1), (other, 0), (other, 1)], ["random", "right"]),
        ([checkpoint, "--ties", "left", "random"], [(model, 0), (model, 1)], ["left", "random"]),
    ):
        results, printed = run(evaluate_parsing, *arguments, "--ensemble", "--treebank", treebank, "--trees", trees)
        parses = [member.parse(sentences, tokenizer, layer=layer) for member, layer in members]
        scores = results["others"]
        rows = [json.loads(line) for line in trees.read_text(encoding="utf-8").splitlines()]
        names = [f"ensemble of {len(members)}, {ties} ties" for ties in all_ties]
        assert [name for name in scores["all"] if name.startswith("ensemble")] == names
        for name, ties in zip(names, all_ties, strict=True):
            generator = np.random.default_rng(0)
            expected = [average_trees(parse, ties=ties, seed=generator) for parse in zip(*parses, strict=True)]
            assert scores["all"][name] == as_json(score_parses(expected, gold))
            assert scores["short"][name] == as_json(score_parses(expected[:2], gold[:2]))
            assert [InducedTree.from_bracket(row["ensembles"][name]) for row in rows] == expected
            assert f"\n{name} " in printed


@pytest.mark.slow
def test_a_treebank_of_files_has_a_row_for_each(run, tmp_path, checkpoint, model, tokenizer):
    first, second = TREES.split("\n( (S (NP-SBJ (NP", 1)
    folder = tmp_path / "treebank"
    folder.mkdir()

    def evaluate(*paths):
        return run(evaluate_parsing, checkpoint, "--layer", 1, "--by-file", "--treebank", *paths)

    (folder / "letters.mrg").write_text(first)
    (folder / "news.mrg.gz").write_bytes(gzip.compress(f"( (S (NP-SBJ (NP{second}".encode()))
    results, printed = evaluate(folder)
    assert list(results["by_file"]) == ["letters", "news"]
    figures = []
    for name, file in (("letters", "letters.mrg"), ("news", "news.mrg.gz")):
        gold = read_treebank(folder / file)
        trees = model.parse([list(tree.words) for tree in gold], tokenizer, layer=1)
        part = results["by_file"][name]
        assert part["num_sentences"] == len(gold) and part["num_words"] == sum(len(tree.words) for tree in gold)
        figures.append(score_parses(trees, gold).sentence_f1)
        assert part["summary"]["layer 2 (--layer 1)"]["sentence_f1"]["mean"] == figures[-1]
        expected = score_baselines(gold)["right branching"].sentence_f1
        assert part["summary"]["right branching"]["sentence_f1"]["mean"] == expected
        row = [str(len(gold)), str(part["num_words"]), f"{100 * figures[-1]:.1f}"]
        assert row_of(printed, f"{name} ").split()[1:4] == row
    assert f"{100 * statistics.mean(figures):.1f}" in printed.partition("mean of files")[2].splitlines()[0]

    again, _ = evaluate(folder / "news.mrg.gz", folder / "letters.mrg")
    assert list(again["by_file"]) == ["news", "letters"]
    scores = [found["by_file"]["news"]["summary"]["layer 2 (--layer 1)"] for found in (results, again)]
    assert scores[0] == scores[1]

    (folder / "letters.test.mrg").write_text(first)
    (tmp_path / "letters.mrg").write_text(first)
    assert list(evaluate(folder)[0]["by_file"]) == ["letters", "letters.test", "news"]
    same_names = [str(folder / "letters.mrg"), str(tmp_path / "letters.mrg")]
    assert list(evaluate(*same_names)[0]["by_file"]) == same_names


def test_sentences_are_scored_by_length(run, checkpoint, model, tokenizer, treebank):
    results, printed = run(evaluate_parsing, checkpoint, "--treebank", treebank, "--layer", 1, "--by-length")
    found = results["by_length"]
    gold = sorted(read_treebank(treebank), key=lambda tree: len(tree.words))
    groups = {"1 to 10": [tree for tree in gold if len(tree.words) <= 10]}
    groups["11 to 20"] = [tree for tree in gold if len(tree.words) > 10]
    assert list(found) == [name for name, trees in groups.items() if trees]
    for name, part in found.items():
        trees = model.parse([list(tree.words) for tree in groups[name]], tokenizer, layer=1)
        f1 = part["summary"]["layer 2 (--layer 1)"]["sentence_f1"]["mean"]
        assert f1 == score_parses(trees, groups[name]).sentence_f1
    assert "length" in printed


def test_several_checkpoints_give_mean_deviation_extremes_and_interval(
    run, tmp_path, checkpoint, other_checkpoint, model, tokenizer, treebank
):
    (folder, other), table = other_checkpoint, tmp_path / "table.csv"
    results, _ = run(evaluate_parsing, checkpoint, folder, "--layer", 1, "--treebank", treebank, "--table", table)
    assert [row["model"] for row in results["models"]] == [checkpoint, folder]
    gold = read_treebank(treebank)
    sentences = [list(tree.words) for tree in gold]
    scores = [score_parses(each.parse(sentences, tokenizer, layer=1), gold) for each in (model, other)]
    first, second = (score.sentence_f1 for score in scores)
    assert first != second
    summary = results["summary"]["all"]["layer 2 (--layer 1)"]
    assert summary["num_checkpoints"] == 2
    assert summary["sentence_f1"]["mean"] == pytest.approx((first + second) / 2)
    assert summary["sentence_f1"]["standard_deviation"] == pytest.approx(abs(first - second) / math.sqrt(2))
    assert summary["sentence_f1"]["max"] == max(first, second)
    assert summary["sentence_f1"]["min"] == min(first, second)
    low, high = mean_f1_interval(scores)
    assert summary["sentence_f1"]["interval"] == [low, high]
    recalls = [score.label_recall["NP"].recall for score in scores]
    assert summary["label_recall"]["NP"]["mean"] == pytest.approx(sum(recalls) / 2)
    header, row, *rest = csv.reader(table.read_text().splitlines())
    assert header[:6] == ["trees", "sentence F1", "s.d.", "min", "max", "95 %"]
    deviation = 100 * abs(first - second) / math.sqrt(2)
    spread = [50 * (first + second), deviation, 100 * min(first, second), 100 * max(first, second)]
    assert row[1:6] == [*(f"{figure:.1f}" for figure in spread), f"{100 * low:.1f}-{100 * high:.1f}"]
    published = {line[0]: line for line in rest}["ON-LSTM, layer 2 (published)"]
    assert published[1:12] == ["47.7", "1.5", "", "49.4", "", "", "65.1", "1.7", "", "66.8", ""]
    right_branching = {line[0]: line for line in rest}["right branching"]
    low, high = score_baselines(gold)["right branching"].sentence_f1_interval
    assert right_branching[2:6] == ["", "", "", f"{100 * low:.1f}-{100 * high:.1f}"]


@pytest.mark.parametrize(
    ("beside", "within", "seed"),
    [
        (None, None, None),
        ('{"recipe": {"seed": 7}}', None, 7),
        (None, '{"training": {"recipe": {"seed": 7}}}', 7),
        *((other, other, None) for other in ("[1, 2]", "{}", "no JSON", '{"training": 1, "recipe": [2]}')),
    ],
)
def test_the_seed_comes_from_a_results_file_of_the_training(tmp_path, model, beside, within, seed):
    folder = tmp_path / "model"
    folder.mkdir()
    for place, content in ((tmp_path, beside), (folder, within)):
        if content is not None:
            (place / "results.json").write_text(content)
    assert describe_checkpoint(str(folder), model)["seed"] == seed


def test_trees_may_be_a_column_of_a_dataset(run, checkpoint, dataset):
    results, _ = run(evaluate_parsing, checkpoint, "--treebank", dataset, "--split", "validation", "--layer", 1)
    scores = results["others"]["all"]
    assert scores["upper bound"]["num_sentences"] == 4
    assert scores["left branching"]["corpus_recall"] == 1


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        (evaluate_lm, "no-model --files missing.txt", "there is no file missing.txt"),
        (evaluate_lm, "no-model --files {folder}/empty", "is empty"),
        (evaluate_lm, "no-model --files {text} --output no/such/folder/results.json", "cannot write"),
        (evaluate_lm, "no-model --files {text} --output {folder}", "it is a folder"),
        (evaluate_lm, "no-model --dataset {data} --split train", "cannot load the split 'train'"),
        (evaluate_lm, "no-model --dataset {data} --column word", "no column 'word'; its columns: text, tree"),
        (evaluate_lm, "no-model --files {text}", "there is no checkpoint folder no-model"),
        (evaluate_parsing, "no-model --treebank {trees}", "there is no checkpoint folder no-model"),
        (evaluate_parsing, "no-model --treebank missing.mrg", "treebank not found: missing.mrg"),
        (evaluate_parsing, "no-model --treebank wjs/", "there is no file or folder wjs/"),
        (evaluate_parsing, "no-model --treebank {folder}/wide", "has NUL characters, as UTF-16 without"),
        (evaluate_parsing, "no-model --treebank {data} --column word", "no column 'word'; its columns: text, tree"),
        (evaluate_parsing, "no-model --treebank {data} --column text", "gold tree 0: "),
        (evaluate_parsing, "no-model --treebank {folder}/broken", "never closed"),
        (evaluate_parsing, "no-model --treebank {trees} --trees no/such/folder/trees", "cannot write"),
        (evaluate_parsing, "no-model --treebank {trees} --table table.doc", "must end in .txt, .md, .tex, .csv"),
        (evaluate_parsing, "{model} --treebank {trees} --layer 2", "layer 2 does not exist"),
        (evaluate_parsing, "{model} --treebank {trees} --layer 0 --ensemble", "agreement needs several parsers"),
        (evaluate_parsing, "{model} {model}/ --treebank {trees} --ensemble", "named twice"),
        (evaluate_parsing, "{model} --treebank {data} --preset plain --by-file", "--by-file needs files of trees"),
    ],
)
def test_bad_input_is_refused(
    refusal, tmp_path, checkpoint, dataset, text_file, treebank, script, arguments, expected
):
    """Bad input is refused before a model is loaded, if no model is needed to see it."""
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "broken").write_text("( (S (NP the cat) sat)")
    (tmp_path / "wide").write_bytes(TREES.encode("utf-16-le"))
    places = {"model": checkpoint, "data": dataset, "folder": tmp_path, "text": text_file, "trees": treebank}
    assert expected in refusal(script, *(argument.format(**places) for argument in arguments.split()))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_only_on_a_terminal(capsys, monkeypatch, checkpoint, text_file, is_terminal):
    monkeypatch.setattr(iteration, "PROGRESS_AFTER_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert evaluate_lm.main([checkpoint, "--files", text_file]) == 0
    assert ("%|" in capsys.readouterr().err) == is_terminal


@pytest.mark.slow
def test_the_scripts_run_from_a_checkout(project_root, checkpoint, treebank):
    command = [sys.executable, "eval/evaluate_parsing.py", checkpoint, "--treebank", treebank]
    ended = subprocess.run(command, cwd=project_root, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "right branching" in ended.stdout
    assert ended.stderr == ""


@pytest.fixture
def portuguese(tmp_path):
    """A checkpoint trained on words without punctuation, and trees of its treebank."""
    rules = {"lowercase": True, "digits_to_n": True, "drop_punctuation": True}
    tokenizer = build_word_tokenizer(["o gato que dorme vê N ratos"], **rules)
    preprocessing = PRESETS["universal"].to_dict()
    model = KINDS["onlstm"].make(vocab_size=len(tokenizer), eos_token_id=0, treebank_preprocessing=preprocessing)
    save(tmp_path / "model", model, tokenizer)
    tree = "((fcl (np (art O) (n Gato)) (PUNCT ,) (vp (v vê) (np (num 12) (n Cães))) (PUNCT .)))"
    (tmp_path / "trees.mrg").write_text(f"{tree}\n((x (PUNCT .)))\n")
    (tmp_path / "text.txt").write_text("O Gato , vê 12 Cães .\n. . .\n", encoding="utf-8")
    return tmp_path


def test_stored_preprocessing_is_used_without_published_figures(portuguese, run):
    command = [portuguese / "model", "--treebank", portuguese / "trees.mrg"]
    results, printed = run(evaluate_parsing, *command)
    assert "1 sentences; words without the tags -NONE-, PUNCT, lower case, digits kept; every sentence" in printed
    assert "1 sentences without a word are left out" in printed
    assert "unknown words: 20.0 %" in printed
    assert "published" not in printed
    assert results["models"][0]["unknown_words"] == pytest.approx(0.2)
    assert results["protocol"]["preprocessing"] == PRESETS["universal"].to_dict()
    assert results["protocol"]["sentences_without_words"] == 1

    _, printed = run(evaluate_parsing, *command, "--preset", "plain")
    assert "2 sentences; every leaf a word, case as written, digits kept" in printed
    changes = ["--dropped-tags", "n,PUNCT", "--no-lowercase", "--digits", "runs", "--function-tag-separators", "-"]
    results, _ = run(evaluate_parsing, *command, *changes)
    known = {"dropped_tags": ["PUNCT", "n"], "lowercase": False, "digits": "runs", "function_tag_separators": "-"}
    assert results["protocol"]["preprocessing"] == known


def test_models_with_different_preprocessing_need_a_preset(portuguese, refusal):
    other = portuguese / "other"
    shutil.copytree(portuguese / "model", other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"treebank_preprocessing": None}))
    command = [str(portuguese / "model"), str(other), "--treebank", str(portuguese / "trees.mrg")]
    message = "was trained with another preprocessing of treebanks than the models before: give --preset"
    assert message in refusal(evaluate_parsing, *command)
    assert evaluate_parsing.main([*command, "--preset", "universal"]) == 0
    error = refusal(evaluate_parsing, *command, "--preset", "universal", "--dropped-tags", "PUNCT,art,n,v,num")
    assert "has a word with this preprocessing" in error


def test_perplexity_counts_words_kept_by_the_tokenizer(portuguese, run):
    results, printed = run(evaluate_lm, portuguese / "model", "--files", portuguese / "text.txt")
    (scores,) = results["scores"].values()
    assert scores["num_tokens"] == 6  # o gato vê N cães <eos>, and nothing of the second line
    assert scores["word_perplexity"] == pytest.approx(scores["perplexity"])
    num_characters = len("O Gato vê 12 Cães") + 1
    assert scores["bits_per_character"] == pytest.approx(-scores["log_likelihood"] / math.log(2) / num_characters)
    assert scores["unknown_words"] == pytest.approx(0.2)
    assert "published" not in printed
