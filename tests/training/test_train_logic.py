"""Training runs on logical inference with tiny models."""

import json
from collections import Counter
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from onlstm_hf import generate_logic_pairs
from onlstm_hf.hub.cards.logic import logic_card
from onlstm_hf.logic.formulas import RELATIONS, split_by_operators
from onlstm_hf.logic.pairs import build_logic_dataset
from tests.helpers.training_runs import check_resumption, log_of, run_in_process
from training import train_logic
from training.classification.batches import ExampleBatches, collate
from training.loop.task import ProcessShard
from training.train_logic import (
    LogicalInference,
    LogicDataArguments,
    build_logic_tokenizer,
    encode_pairs,
    load_logic_splits,
    parse_logic_recipe,
)

RECIPE = """
model_type: {model_type}
model: {{embedding_size: 8, hidden_size: 12, num_hidden_layers: 1, layer_sizes: [12], tie_word_embeddings: false}}
num_pairs: 700
max_train_operators: 4
batch_size: 32
learning_rate: 0.01
num_epochs: 3
log_every_steps: 2
num_threads: 1
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model_type in ("onlstm", "rnn"):
        Path(f"{model_type}.yaml").write_text(RECIPE.format(model_type=model_type))


def train(output_dir, *overrides, recipe="rnn"):
    return run_in_process(train_logic.main, output_dir, *overrides, recipe=f"{recipe}.yaml")


@pytest.fixture(scope="module")
def pairs():
    return list(generate_logic_pairs(300, seed=4))


def test_a_run_learns_and_writes_classifier_log_and_results():
    results = train("run", "--model.chunk_size", "4", "--model.parse_layer", "0", recipe="onlstm")
    assert json.loads(Path("run/results.json").read_text()) == results
    training_pairs, _, test = load_logic_splits(LogicDataArguments(num_pairs=700, max_train_operators=4))
    assert results["training_pairs"] == len(training_pairs)

    model = AutoModelForSequenceClassification.from_pretrained("run/best")
    tokenizer = AutoTokenizer.from_pretrained("run/best")
    assert list(model.config.id2label.values()) == list(RELATIONS)
    for number, of_number in test.items():
        right = 0
        for pair in of_number:
            left, other = (tokenizer(side, return_tensors="pt")["input_ids"] for side in pair[1:])
            label = model.eval()(left, input_ids_pair=other).logits.argmax().item()
            right += model.config.id2label[label] == pair.relation
        group = results["test"]["by_operators"][str(number)]
        assert (group["correct"], group["total"]) == (right, len(of_number))

    card = logic_card("ada/logic", model.config, results).text
    assert f"{len(training_pairs):,} pairs of the 700 that onlstm_hf generates with seed 0 with at most 4" in card
    assert f"Accuracy on all pairs is {100 * results['test']['accuracy']:.1f} %" in card

    log = log_of("run")
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert sum(losses[-3:]) < sum(losses[:3])
    accuracies = [entry["validation_accuracy"] for entry in log if "validation_accuracy" in entry]
    assert len(accuracies) == 3
    assert results["validation_accuracy"] == max(accuracies)
    assert results["best_epoch"] == accuracies.index(max(accuracies)) + 1


def test_a_run_stopped_within_an_epoch_resumes_from_its_last_update(monkeypatch):
    options = ["--save_every_steps", 2, "--gradient_accumulation_steps", 2, "--seed", 3]
    check_resumption(monkeypatch, train, *options, stops=(8,))


def test_the_learning_rate_is_halved_when_validation_does_not_improve():
    # The weights hardly change, so that the accuracy stays constant.
    train("run", "--learning_rate", "1e-30", "--num_epochs", 5, "--patience", 1, "--adam_epsilon", 1)
    rates = [entry["learning_rate"] for entry in log_of("run") if "validation_accuracy" in entry]
    assert rates == [1e-30, 1e-30, 1e-30, 5e-31, 5e-31]


def test_every_tenth_training_pair_is_held_out(pairs):
    splits = split_by_operators(pairs)
    known = [pair for number in range(4) for pair in splits[f"train{number}"]]
    build_logic_dataset(splits).save_to_disk("pairs")
    training, validation, test = load_logic_splits(LogicDataArguments(pairs="pairs", max_train_operators=3))
    assert validation == known[9::10]
    assert sorted(training + validation) == sorted(known)
    assert test == {n: splits[f"test{n}"] for n in range(13) if splits[f"test{n}"]}


def test_the_authors_files_are_read(shared_dir):
    training, validation, test = load_logic_splits(LogicDataArguments(pairs=str(shared_dir / "data" / "logic")))
    assert (len(training), len(validation)) == (121_977, 13_552)
    assert list(test) == list(range(13)) and len(test[7]) == 4707


@pytest.mark.parametrize("num_processes", [1, 3])
def test_all_processes_together_see_every_pair_once_per_epoch(pairs, num_processes):
    encoded = encode_pairs(pairs, build_logic_tokenizer())
    shards = [ProcessShard(7, index, num_processes) for index in range(num_processes)]
    sources = [ExampleBatches(encoded, shard, seed=1) for shard in shards]
    seen, num_batches = Counter(), 0
    for batches in zip(*(source.batches(2) for source in sources), strict=True):
        seen.update(id(pair) for batch in batches for pair in batch.examples)
        num_rows = sum(len(batch.examples) for batch in batches)
        assert {batch.num_items for batch in batches} == {num_rows / num_processes}
        num_batches += 1
    assert seen == Counter(map(id, encoded))
    assert num_batches == sources[0].num_batches(2)
    orders = [[id(pair) for batch in sources[0].batches(epoch) for pair in batch.examples] for epoch in (2, 2, 3)]
    assert orders[0] == orders[1] != orders[2]
    later = [batch.examples for batch in sources[0].batches(2, start=3)]
    assert later == [batch.examples for batch in sources[0].batches(2)][3:]


def test_batches_hold_pairs_of_similar_length_padded_on_the_right(pairs):
    encoded = encode_pairs(pairs, build_logic_tokenizer())
    batches = [batch.examples for batch in ExampleBatches(encoded, ProcessShard(8), seed=0).batches(0)]
    spreads = [max(p.lengths[0] for p in rows) - min(p.lengths[0] for p in rows) for rows in batches]
    assert sum(spreads) / len(spreads) < 5
    inputs = collate(batches[0])
    for index, (left, right) in enumerate(pair.sequences for pair in batches[0]):
        assert inputs["input_ids"][index][inputs["attention_mask"][index].bool()].tolist() == left.tolist()
        assert inputs["input_ids_pair"][index, : len(right)].tolist() == right.tolist()
        assert inputs["attention_mask_pair"][index].sum() == len(right)


@pytest.mark.parametrize("name", ["logic_onlstm", "logic_lstm", "logic_tree_lstm"])
def test_the_recipes_have_the_authors_settings(project_root, name):
    recipe = parse_logic_recipe([str(project_root / "training" / "recipes" / f"{name}.yaml")])
    model = LogicalInference(recipe).build_model(None)
    assert model.classifier.output.in_features == 400 and model.config.num_labels == 7
    assert {model.config.input_dropout, model.config.classifier_dropout} == {0.2}
    assert model.model.embeddings.weight.abs().max() <= 0.1
    optimization = recipe.optimization
    assert (optimization.batch_size, optimization.num_epochs, optimization.adam_epsilon) == (128, 50, 1e-9)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--holdout_every", "1"], "holdout_every must be at least 2"),
        (["--bptt_length", "3"], "unknown arguments: --bptt_length 3; see train_logic.py --help"),
        (["--model.hidden", "3"], "RNNConfig has no fields hidden"),
        (["--model_type", "prpn"], 'models of type "prpn" cannot be trained here.* one of onlstm, rnn, tree_lstm, or'),
        (["--num_pairs", "50", "--max_train_operators", "0"], "need pairs of at most 0 operators"),
        (["--pairs", "no/such"], "cannot load the pairs no/such: there is no file or folder no/such"),
    ],
)
def test_bad_fields_are_refused(overrides, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train("run", *overrides)
