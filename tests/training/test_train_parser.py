"""Parser training pipeline: voters, grammar, average and student."""

import json
import re
from argparse import Namespace
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest

from onlstm_hf.trees.tree_files import read_tree_file
from tests.helpers.training_runs import GOLD_TREES, write_texts
from training import train_parser
from training.language_models.recipe import parse_recipe
from training.train_grammar import parse_grammar_recipe

SHARED = """
bptt_length: 8
batch_size: 2
optimizer: adamw
learning_rate: 0.01
num_epochs: 1
num_threads: 1
split: treebank
drop_punctuation: true
output_dir: runs
"""
SIZES = "embedding_size: 8, hidden_size: 12"
RECIPES = {
    "onlstm": f"model: {{{SIZES}, num_hidden_layers: 2, chunk_size: 4}}\n{SHARED}",
    "prpn": f"model_type: prpn\nmodel: {{{SIZES}, num_hidden_layers: 1, num_slots: 4, lookback: 2}}\n{SHARED}",
    "student": f"tree_batch_size: 4\n{SHARED}",
    "grammar": "model: {num_nonterminals: 3, num_preterminals: 4, hidden_size: 8}\nnum_epochs: 1\noutput_dir: runs\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(train=120, valid=12)
    text = Path("train.txt")
    text.write_text(text.read_text().replace(" the ", ", the "))
    Path("gold.mrg").write_text(GOLD_TREES)
    for name, recipe in RECIPES.items():
        Path(f"{name}.yaml").write_text(recipe)


def arguments(*more):
    return [
        *("--output_dir", "out", "--voters", "onlstm.yaml", "prpn.yaml", "--student", "student.yaml"),
        *("--seeds", "1", "--train_files", "train.txt", "--validation_files", "valid.txt"),
        *map(str, more),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_one_command_trains_voters_grammar_average_and_student(capfd):
    command = arguments("--grammar", "grammar.yaml", "--gold_trees", "gold.mrg", "--weights", 5, "--temperatures", 0.2)
    command += ["--student_updates", "100"]
    assert train_parser.main([*command, "--trial_steps", "2", "--num_threads", "1"]) == 0
    averaged = read_tree_file("out/averaged/averaged.jsonl.xz").model["averaged"]
    assert Counter(member["model_type"] for member in averaged) == {"onlstm": 1, "prpn": 1, "neural_grammar": 1}
    weights = {member["model_type"]: member["weight"] for member in averaged}
    assert weights == {"onlstm": 1, "prpn": 1, "neural_grammar": 2}
    grammar = json.loads(Path("out/grammar/seed_1/results.json").read_text())
    assert len(grammar["votes"]) == 2 and "parsing" in grammar
    choice = json.loads(Path("out/choice.json").read_text())
    results = json.loads(Path("out/parser/seed_1/results.json").read_text())
    assert {name: results["recipe"][name] for name in choice["chosen"]} == choice["chosen"]
    assert results["recipe"]["init_from"] == "out/onlstm/seed_1/best"
    assert 100 <= results["updates"] < 160 and results["recipe"]["num_epochs"] > 1
    assert results["target_trees"]["of_training_text"] and "parsing" in results
    output = capfd.readouterr().out
    assert "parser\nseed" in output and re.search(r"F1 of .*balanced .*\n\ngrammar\nseed +F1\n1 +\d", output)

    # The same command does not repeat any training.
    kept = {path: path.stat().st_mtime_ns for path in Path("out").rglob("best/model.safetensors")}
    assert len(kept) == 5
    assert train_parser.main([*command, "--trial_steps", "2", "--num_threads", "1"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_a_failed_stage_ends_the_command_with_a_hint(refusal):
    assert "hidden_sise" in refusal(train_parser, *arguments(), "--hidden_sise", "3")
    Path("onlstm.yaml").write_text(RECIPES["onlstm"].replace("batch_size: 2", "batch_size: 5000"))
    error = refusal(train_parser, *arguments())
    assert "train_seeds.py ended with exit code 1; the same command continues" in error


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("prpn", "num_slots", "num_slot", "PRPNConfig has no fields num_slot"),
        ("onlstm", "chunk_size: 4", "chunk_size: 5", "chunk_size=5 must divide"),
        ("student", "tree_batch_size: 4", "model: {parse_layr: 1}", "ONLSTMConfig has no fields parse_layr"),
        ("grammar", "num_nonterminals", "num_nonterminal", "NeuralGrammarConfig has no fields num_nonterminal"),
    ],
)
def test_fields_of_every_model_are_checked_before_training(refusal, name, before, after, message):
    Path(f"{name}.yaml").write_text(RECIPES[name].replace(before, after))
    assert message in refusal(train_parser, *arguments("--grammar", "grammar.yaml"))
    assert not Path("out").exists()


@pytest.mark.usefixtures("project")
def test_a_finished_student_of_another_recipe_is_refused(monkeypatch):
    monkeypatch.setattr(train_parser, "run_stage", lambda *_: None)
    folder, text = Path("parser"), ["--train_files", "train.txt", "--validation_files", "valid.txt"]
    student, options = ["student.yaml", *text], ["--init_from", "start", "--output_dir", "parser"]
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({"recipe": parse_recipe([*student, *options]).fields()}))
    assert train_parser.train_student(folder, Path("start"), [*student, "--seed", 3])
    with pytest.raises(ValueError, match="parser is a finished run with tree_loss_weight 1.0, not 5.0"):
        train_parser.train_student(folder, Path("start"), [*student, "--tree_loss_weight=5"])


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("num_epochs", "accumulated"),
    [(4, 1), (1000, 1), (4, 3)],  # as many epochs as planned; fewer than planned; three batches per update
)
def test_the_student_gets_the_epochs_that_its_updates_need(num_epochs, accumulated):
    student = parse_recipe(["student.yaml", "--train_files", "train.txt", "--validation_files", "valid.txt"])
    recipe = {"batch_size": 4, "bptt_length": 16, "gradient_accumulation_steps": accumulated, "num_epochs": num_epochs}
    voter = {"epochs": 4, "updates": 40, "recipe": recipe}  # 10 updates per epoch, 64 tokens per batch
    assert train_parser.student_epochs(student, voter, 120 * accumulated) == 3  # 40 per epoch, 16 tokens per batch


@pytest.mark.usefixtures("project")
def test_the_grammar_reads_gold_trees_as_the_voters_do(monkeypatch):
    read = ["--dropped_tags", "-NONE-", "PU", "--treebank_lowercase", "false", "--function_tag_separators", "-="]
    voter = parse_recipe(["onlstm.yaml", "--train_files", "train.txt", "--validation_files", "valid.txt", *read])
    stages = []
    monkeypatch.setattr(train_parser, "run_stage", lambda _, *stage: stages.append([str(part) for part in stage]))
    monkeypatch.setattr(train_parser, "trees_of_text", lambda *_: [])
    options = arguments("--grammar", "grammar.yaml", "--gold_trees", "gold.mrg")
    options, _ = train_parser.build_parser().parse_known_args(options)
    train_parser.train_grammars({"onlstm": [Path("votes")]}, Path("tokenizer"), voter.data, options)
    data = parse_grammar_recipe(stages[0]).data
    fields = attrgetter(*train_parser.TREEBANK_FIELDS)
    assert fields(data) == fields(voter.data)


@pytest.mark.parametrize(
    ("perplexities", "agreements", "chosen"),
    [
        ([101, 102, 104], [50, 52, 55], 1),  # the best agreement within the limit of perplexity
        ([101, 102, 103], [50, 52, 55], 2),
        ([110, 108, 109], [50, 52, 55], 1),  # all exceed the limit: the lowest perplexity
    ],
)
def test_weight_and_temperature_are_chosen_without_gold_trees(tmp_path, monkeypatch, perplexities, agreements, chosen):
    (tmp_path / "results.json").write_text(json.dumps({"validation_perplexity": 100.0}))
    weights, scores = [1.0, 3.0, 10.0], iter(zip(perplexities, agreements, strict=True))
    tried = []

    def train_student(folder, start, student):
        tried.extend(float(option.partition("=")[2]) for option in student if "tree_loss_weight" in str(option))
        perplexity, agreement = next(scores)
        return {"validation_perplexity": perplexity, "target_trees": {"held_out_tree_f1": agreement}}

    monkeypatch.setattr(train_parser, "train_student", train_student)
    options = Namespace(
        **{"weights": weights, "temperatures": [0.1], "seeds": [1], "trial_steps": 4},
        **{"max_perplexity_loss": 0.031, "output_dir": tmp_path},
    )
    found = train_parser.choose(["student.yaml"], tmp_path / "best", options)
    assert tried == weights and found == [f"--tree_loss_weight={weights[chosen]:g}", "--tree_temperature=0.1"]
    assert json.loads((tmp_path / "choice.json").read_text())["chosen"]["tree_loss_weight"] == weights[chosen]
