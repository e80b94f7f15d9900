"""Training runs on ListOps with tiny models."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from onlstm_hf import ONLSTMConfig, PRPNConfig, PRPNForSequenceClassification
from onlstm_hf.logic.listops import generate_listops
from training import train_listops
from training.train_listops import (
    ListOpsDataArguments,
    build_listops_tokenizer,
    encode_expressions,
    induced_trees,
    load_listops_splits,
    parse_listops_recipe,
)

MODELS = {
    "onlstm": "{embedding_size: 8, hidden_size: 8, num_hidden_layers: 1, layer_sizes: [8], chunk_size: 4, "
    "parse_layer: 0}",
    "rnn": "{embedding_size: 8, hidden_size: 8, num_hidden_layers: 1, layer_sizes: [8]}",
    "tree_lstm": "{embedding_size: 8, hidden_size: 8, open_bracket_id: 0, close_bracket_id: 1}",
}
RECIPE = """
model_type: {model_type}
model: {model}
num_train: 300
num_validation: 40
num_test: 60
max_train_length: 30
round_brackets: {round_brackets}
batch_size: 32
learning_rate: 0.01
num_epochs: 2
num_threads: 1
"""


def train(model_type, *overrides):
    is_tree = str(model_type == "tree_lstm").lower()
    recipe = RECIPE.format(model_type=model_type, model=MODELS[model_type], round_brackets=is_tree)
    Path("recipe.yaml").write_text(recipe)
    return train_listops.main(["recipe.yaml", "--output_dir", "run", *map(str, overrides)])


@pytest.mark.parametrize("model_type", list(MODELS))
def test_a_run_writes_a_classifier_and_its_reproducible_results(model_type, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = train(model_type)
    assert json.loads(Path("run/results.json").read_text()) == results
    sizes = {"num_train": 300, "num_validation": 40, "num_test": 60, "max_train_length": 30}
    splits = load_listops_splits(ListOpsDataArguments(**sizes))
    model = AutoModelForSequenceClassification.from_pretrained("run/best").eval()
    tokenizer = AutoTokenizer.from_pretrained("run/best")
    right = 0
    for expression in splits["test"]:
        text = expression.brackets if model_type == "tree_lstm" else " ".join(expression.tokens)
        with torch.no_grad():
            logits = model(input_ids=tokenizer(text, return_tensors="pt")["input_ids"]).logits
        right += model.config.id2label[logits.argmax().item()] == str(expression.value)
    assert results["test"]["accuracy"] == right / 60
    assert results["training_expressions"] == len(splits["train"])
    assert (results["trees"] is None) == (model_type != "onlstm")


def test_splits_are_disjoint_and_only_the_test_has_long_expressions():
    sizes = {"num_train": 500, "num_validation": 50, "num_test": 100, "max_train_length": 20}
    splits = load_listops_splits(ListOpsDataArguments(**sizes))
    train, validation, test = map(set, splits.values())
    assert not train & validation and not train & test and not validation & test
    assert len(test) == 100 and max(len(expression.tokens) for expression in test) > 20
    assert max(len(expression.tokens) for expression in train | validation) <= 20


def test_training_splits_of_the_authors_files_exclude_test_expressions(tmp_path):
    expressions = list(generate_listops(30, seed=5))
    for name, part in (("train", expressions[:25]), ("test", expressions[20:])):
        lines = (f"{expression.value}\t{expression.brackets}\n" for expression in part)
        (tmp_path / f"{name}_d20s.tsv").write_text("".join(lines))
    splits = load_listops_splits(ListOpsDataArguments(expressions=str(tmp_path), num_validation=4))
    assert splits["validation"] + splits["train"] == expressions[:20]
    assert len(splits["validation"]) == 4
    assert splits["test"] == expressions[20:]
    with pytest.raises(ValueError, match="at least one expression each"):
        load_listops_splits(ListOpsDataArguments(expressions=str(tmp_path), num_validation=40))


def test_a_model_without_distances_has_no_trees():
    expressions = list(generate_listops(3, seed=1))
    examples = encode_expressions(expressions, build_listops_tokenizer(), round_brackets=False)
    for options in ({"parsing_network": False}, {}):
        config = PRPNConfig(vocab_size=20, embedding_size=8, hidden_size=8, num_slots=2, num_labels=10, **options)
        trees = induced_trees(PRPNForSequenceClassification(config), examples, expressions, batch_size=2)
        assert (trees is None) == bool(options)


def test_trees_do_not_depend_on_the_batch():
    torch.manual_seed(0)
    tokenizer = build_listops_tokenizer()
    expressions = list(generate_listops(20, seed=6))
    examples = encode_expressions(expressions, tokenizer, round_brackets=False)
    config = ONLSTMConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=8, chunk_size=2, num_labels=10)
    model = AutoModelForSequenceClassification.from_config(config)
    together = induced_trees(model, examples, expressions, batch_size=8)
    assert [tree.words for tree in together] == [expression.tokens for expression in expressions]
    for example, expression, tree in zip(examples, expressions, together, strict=True):
        (alone,) = induced_trees(model, [example], [expression], batch_size=1)
        assert alone.spans() == tree.spans()


@pytest.mark.parametrize("name", ["listops_onlstm", "listops_lstm", "listops_tree_lstm"])
def test_the_recipes_differ_only_in_the_model(project_root, name):
    recipe = parse_listops_recipe([str(project_root / f"training/recipes/{name}.yaml")])
    other = parse_listops_recipe([str(project_root / "training/recipes/listops_onlstm.yaml")])
    assert recipe.optimization == other.optimization
    assert recipe.data.max_train_length == other.data.max_train_length == 100
    assert recipe.data.round_brackets == (name == "listops_tree_lstm")
