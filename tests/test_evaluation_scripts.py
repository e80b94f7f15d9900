import json
import math
import re
import subprocess
import sys

import evaluate_lm
import evaluate_parsing
import pytest
import torch

from onlstm_hf import InducedTree, ONLSTMConfig, ONLSTMForCausalLM, build_word_tokenizer
from onlstm_hf.parsing_scores import score_baselines, score_parses
from onlstm_hf.tree_averaging import average_trees
from onlstm_hf.treebank import AS_WRITTEN, GoldTree, read_treebank

pytest.importorskip("datasets")
evaluate = pytest.importorskip("evaluate")

LINES = ["the cat sat on the mat", "it saw N dogs", "dogs", "", "the old dog that the cat saw sat on the old mat"]
TREES = """\
( (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .)) )
( (S (NP-SBJ (PRP It)) (VP (VBD saw) (NP (CD 2) (NNS dogs))) (. .)) )
( (S (NP-SBJ (NP (DT The) (JJ old) (NN dog)) (SBAR (WHNP (WDT that)) (S (NP-SBJ (DT the) (NN cat)) (VP (VBD saw)))))
     (VP (VBD sat) (PP (IN on) (NP (DT the) (JJ old) (NN mat)))) (. .)) )
"""


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer(LINES, pad_token="<eos>")


@pytest.fixture(scope="module")
def model(tokenizer):
    """A model whose weights are large enough for its layers to disagree on the trees."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2, "chunk_size": 2}
    model = ONLSTMForCausalLM(ONLSTMConfig(vocab_size=len(tokenizer), eos_token_id=0, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, model, tokenizer):
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", autouse=True)
def fresh_caches(tmp_path_factory):
    """Keeps data sets and copies of the metric out of the user's caches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        patch.setattr(evaluate.config, "HF_METRICS_CACHE", str(tmp_path_factory.mktemp("metrics")))
        patch.setattr(sys, "path", list(sys.path))
        for name in [name for name in sys.modules if name.partition(".")[0] == "evaluate_modules"]:
            patch.delitem(sys.modules, name)
        yield


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
    """A dataset folder with the lines in `validation` and, backwards, in `test`, and trees beside both."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    lines = [line for line in LINES if line]
    trees = [re.sub(r"^(.*) (\S+)$", r"(X \1) \2", line) for line in lines]
    rows = [json.dumps({"text": line, "tree": f"(S {tree})"}) for line, tree in zip(lines, trees, strict=True)]
    (folder / "validation.jsonl").write_text("\n".join(rows))
    (folder / "test.jsonl").write_text("\n".join(reversed(rows)))
    return str(folder)


def log_likelihood(model, tokenizer, lines, carry_state):
    """Reads one token at a time, each line after an `<eos>` and with one at its end."""
    state, previous, total, count = None, 0, 0.0, 0
    for line in lines:
        if not carry_state:
            state, previous = None, 0
        for token in [*tokenizer(line)["input_ids"], 0]:
            with torch.no_grad():
                output = model(torch.tensor([[previous]]), state=state, use_cache=True)
            total += output.logits[0, -1].double().log_softmax(-1)[token].item()
            state, previous, count = output.state, token, count + 1
    return total, count


@pytest.mark.parametrize("protocol", ["stream", "sentence"])
def test_perplexity_is_that_of_reading_token_by_token(
    capsys, tmp_path, checkpoint, model, tokenizer, text_file, protocol
):
    output = tmp_path / "results.json"
    arguments = [checkpoint, "--files", text_file, "--protocol", protocol, "--output", str(output)]
    assert evaluate_lm.main(arguments) == 0
    results = json.loads(output.read_text())
    scores = results["scores"][text_file]
    total, count = log_likelihood(model, tokenizer, [line for line in LINES if line], protocol == "stream")
    assert scores["log_likelihood"] == pytest.approx(total, abs=1e-4)
    assert scores["num_tokens"] == count
    assert scores["perplexity"] == pytest.approx(math.exp(-total / count), rel=1e-5)
    assert scores["word_perplexity"] == pytest.approx(scores["perplexity"])
    num_characters = sum(len(line) + 1 for line in LINES if line)
    assert scores["bits_per_character"] == pytest.approx(-total / math.log(2) / num_characters, rel=1e-5)
    assert results["protocol"]["name"] == protocol
    assert results["command"].startswith("python eval/evaluate_lm.py ") and "--protocol" in results["command"]
    assert {"onlstm_hf", "torch", "transformers", "python"} <= set(results["versions"])

    table = capsys.readouterr().out
    (row,) = [line for line in table.splitlines() if line.startswith(text_file)]
    assert row.split()[1:3] == [str(count), f"{scores['perplexity']:.2f}"]
    assert "Penn Treebank test (published)" in table and "56.17" in table and "58.29" in table


def test_rows_of_the_stream_begin_anew(capsys, tmp_path, checkpoint, model, tokenizer, text_file):
    output = tmp_path / "results.json"
    assert evaluate_lm.main([checkpoint, "--files", text_file, "--batch-size", "4", "--output", str(output)]) == 0
    scores = json.loads(output.read_text())["scores"][text_file]
    total, count = log_likelihood(model, tokenizer, [line for line in LINES if line], carry_state=True)
    assert scores["num_tokens"] == count
    assert scores["log_likelihood"] != pytest.approx(total, abs=1e-3)


def test_every_split_of_a_dataset_and_every_file_is_a_text(capsys, checkpoint, dataset, text_file):
    assert evaluate_lm.main([checkpoint, "--dataset", dataset, "--split", "validation", "test"]) == 0
    by_split = capsys.readouterr().out
    assert evaluate_lm.main([checkpoint, "--files", text_file, text_file]) == 0
    by_file = capsys.readouterr().out
    (validation,) = [line.split() for line in by_split.splitlines() if line.startswith(f"{dataset} validation")]
    (test,) = [line.split() for line in by_split.splitlines() if line.startswith(f"{dataset} test")]
    text = next(line.split() for line in by_file.splitlines() if line.startswith(text_file))
    assert validation[2:] == text[1:]
    assert test[2] == text[1] and test[3] != text[2]


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--files", "missing.txt"], "there is no file missing.txt"),
        (["--files", "{empty}"], "is empty"),
        (["--files", "{text}", "--output", "no/such/folder/results.json"], "cannot write"),
        (["--dataset", "{dataset}", "--split", "train"], "cannot load the split 'train'"),
        (["--dataset", "{dataset}", "--column", "sentence"], "no column 'sentence'; its columns: text, tree"),
    ],
)
def test_bad_text_is_refused_before_the_model_is_loaded(capsys, tmp_path, dataset, text_file, arguments, expected):
    (tmp_path / "empty").write_text("\n \n")
    places = {"empty": tmp_path / "empty", "text": text_file, "dataset": dataset}
    capsys.readouterr()
    assert evaluate_lm.main(["no-such-model", *(argument.format(**places) for argument in arguments)]) == 1
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("evaluate_lm.py: ")]
    assert len(error) == 1 and expected in error[0]


def test_a_missing_model_is_one_line(capsys, text_file, treebank):
    assert evaluate_lm.main(["no-such-model", "--files", text_file]) == 1
    assert capsys.readouterr().err == "evaluate_lm.py: there is no checkpoint folder no-such-model\n"
    assert evaluate_parsing.main(["no-such-model", "--treebank", treebank]) == 1
    assert capsys.readouterr().err == "evaluate_parsing.py: there is no checkpoint folder no-such-model\n"


def as_json(scores):
    """Scores as they are read back."""
    return json.loads(json.dumps(scores.to_dict()))


@pytest.mark.parametrize("branching_bias", ["right", "none"])
def test_parsing_scores_are_those_of_the_induced_trees(
    capsys, tmp_path, checkpoint, model, tokenizer, treebank, branching_bias
):
    output = tmp_path / "results.json"
    arguments = [checkpoint, "--treebank", treebank, "--branching-bias", branching_bias, "--output", str(output)]
    assert evaluate_parsing.main([*arguments, "--note", "seen in training"]) == 0
    results = json.loads(output.read_text())
    gold = read_treebank(treebank)
    for part, part_gold in (("all", gold), ("short", gold[:2])):
        sentences = [list(tree.words) for tree in part_gold]
        for layer in (0, 1):
            trees = model.parse(sentences, tokenizer, layer=layer, branching_bias=branching_bias)
            expected = as_json(score_parses(trees, part_gold))
            assert results["scores"][part][f"layer {layer + 1} (--layer {layer})"] == expected
        for name, expected in score_baselines(part_gold).items():
            assert results["scores"][part][name] == as_json(expected)
    assert results["scores"]["all"]["upper bound"]["sentence_f1"] < 1
    assert results["note"] == "seen in training"
    assert results["published"]["rows"][0]["wsj"] == {"mean": 47.7, "max": 49.4}


def test_the_table_has_layers_baselines_and_published_figures(capsys, checkpoint, model, tokenizer, treebank):
    assert evaluate_parsing.main([checkpoint, "--treebank", treebank]) == 0
    table = capsys.readouterr().out
    gold = read_treebank(treebank)
    rows = {"layer 2 (--layer 1)": model.parse([list(tree.words) for tree in gold], tokenizer, layer=1)}
    for name, trees in rows.items():
        scores, short_scores = score_parses(trees, gold), score_parses(trees[:2], gold[:2])
        (row,) = [line for line in table.splitlines() if line.startswith(name)]
        cells = row.removeprefix(name).split()
        assert cells[:3] == [
            f"{100 * value:.1f}" for value in (scores.sentence_f1, scores.corpus_f1, short_scores.sentence_f1)
        ]
        assert cells[3] == f"{scores.average_depth:.1f}"
        assert cells[4:] == [
            "-",
            f"{100 * scores.label_recall['NP'].recall:.1f}",
            f"{100 * scores.label_recall['PP'].recall:.1f}",
            "-",
        ]
    for name in ("layer 1", "left branching", "right branching", "balanced", "random (uniform splits)", "upper bound"):
        assert f"\n{name} " in table
    assert "ON-LSTM, layer 2 (published)" in table and "47.7 / 49.4" in table and "65.1 / 66.8" in table
    assert "section 23" in table


def test_one_layer_and_no_short_sentences(capsys, checkpoint, treebank):
    assert evaluate_parsing.main([checkpoint, "--treebank", treebank, "--layer", "0", "--max-words", "2"]) == 0
    table = capsys.readouterr().out
    assert "layer 1 (--layer 0)" in table and "--layer 1)" not in table
    assert "F1, <= 2 words" in table
    assert "65.1" not in table


def test_induced_trees_are_written_beside_the_gold_trees(capsys, tmp_path, checkpoint, model, tokenizer, treebank):
    path = tmp_path / "trees.jsonl"
    assert evaluate_parsing.main([checkpoint, "--treebank", treebank, "--trees", str(path)]) == 0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    gold = read_treebank(treebank)
    assert [GoldTree.from_bracket(row["gold"], AS_WRITTEN) for row in rows] == gold
    for layer in (0, 1):
        induced = [InducedTree.from_bracket(row["induced"][str(layer)]) for row in rows]
        assert induced == model.parse([list(tree.words) for tree in gold], tokenizer, layer=layer)


@pytest.fixture(scope="module")
def other_checkpoint(tmp_path_factory, model, tokenizer):
    """The same words, other weights."""
    torch.manual_seed(1)
    other = ONLSTMForCausalLM(model.config).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(6)
    folder = tmp_path_factory.mktemp("other")
    other.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder), other


def test_the_trees_of_layers_or_checkpoints_are_averaged(
    capsys, tmp_path, checkpoint, other_checkpoint, model, tokenizer, treebank
):
    output, trees = tmp_path / "results.json", tmp_path / "trees.jsonl"
    gold = read_treebank(treebank)
    sentences = [list(tree.words) for tree in gold]
    folder, other = other_checkpoint
    for arguments, members in (
        (["--layer", "1", "--ensemble", folder], [(model, 1), (other, 1)]),
        (["--ensemble", folder], [(model, 0), (model, 1), (other, 0), (other, 1)]),
        (["--ensemble"], [(model, 0), (model, 1)]),
    ):
        files = ["--output", str(output), "--trees", str(trees)]
        assert evaluate_parsing.main([checkpoint, "--treebank", treebank, *files, *arguments]) == 0
        parses = [member.parse(sentences, tokenizer, layer=layer) for member, layer in members]
        expected = [average_trees(parse) for parse in zip(*parses, strict=True)]
        name = f"ensemble of {len(members)}"
        scores = json.loads(output.read_text())["scores"]
        assert scores["all"][name] == as_json(score_parses(expected, gold))
        assert scores["short"][name] == as_json(score_parses(expected[:2], gold[:2]))
        rows = [json.loads(line) for line in trees.read_text(encoding="utf-8").splitlines()]
        assert [InducedTree.from_bracket(row["induced"][name]) for row in rows] == expected
        assert f"\n{name} " in capsys.readouterr().out


def test_one_tree_a_sentence_is_no_ensemble(capsys, checkpoint, treebank):
    assert evaluate_parsing.main([checkpoint, "--treebank", treebank, "--layer", "0", "--ensemble"]) == 1
    assert "one layer of one model is no ensemble" in capsys.readouterr().err


def test_trees_may_be_a_column_of_a_dataset(capsys, tmp_path, checkpoint, dataset):
    output = tmp_path / "results.json"
    arguments = ["--treebank", dataset, "--split", "validation", "--layer", "1", "--output", str(output)]
    assert evaluate_parsing.main([checkpoint, *arguments]) == 0
    scores = json.loads(output.read_text())["scores"]["all"]
    assert scores["upper bound"]["num_sentences"] == 4
    assert scores["left branching"]["corpus_recall"] == 1


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--treebank", "missing.mrg"], "treebank not found: missing.mrg"),
        (["--treebank", "{dataset}", "--column", "parse"], "no column 'parse'; its columns: text, tree"),
        (["--treebank", "{dataset}", "--column", "text"], "gold tree 0: "),
        (["--treebank", "{broken}"], "never closed"),
        (["--treebank", "{trees}", "--trees", "no/such/folder/trees"], "cannot write"),
    ],
)
def test_bad_treebanks_are_refused_before_the_model_is_loaded(
    capsys, tmp_path, dataset, treebank, arguments, expected
):
    (tmp_path / "broken").write_text("( (S (NP the cat) sat)")
    places = {"broken": tmp_path / "broken", "trees": treebank, "dataset": dataset}
    capsys.readouterr()
    assert evaluate_parsing.main(["no-such-model", *(argument.format(**places) for argument in arguments)]) == 1
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("evaluate_parsing.py: ")]
    assert len(error) == 1 and expected in error[0]


def test_an_unknown_layer_is_refused(capsys, checkpoint, treebank):
    assert evaluate_parsing.main([checkpoint, "--treebank", treebank, "--layer", "2"]) == 1
    assert "layer 2 does not exist" in capsys.readouterr().err


def test_the_scripts_run_from_a_checkout(project_root, checkpoint, treebank):
    command = [sys.executable, "eval/evaluate_parsing.py", checkpoint, "--treebank", treebank]
    ended = subprocess.run(command, cwd=project_root, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "right branching" in ended.stdout
    assert ended.stderr == ""
