"""Training runs of tiny language models: outputs, averaging, resuming, processes and errors."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import launch_command, launch_command_parser
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import ONLSTMForCausalLM, build_word_tokenizer
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.scoring.stream import stream_log_likelihood
from onlstm_hf.trees.treebank import PRESETS, gold_trees_from_brackets, preprocessing_of
from tests.helpers.folders import contents, names_in
from tests.helpers.forked_processes import forked_context, run_ranks
from tests.helpers.loopback import enter_process, free_port
from tests.helpers.requirements import library
from tests.helpers.tiny_models import KINDS
from tests.helpers.training_runs import (
    GOLD_TREES,
    NO_DROPOUT,
    WORDS,
    Stopped,
    assert_same_run,
    check_resumption,
    command,
    log_of,
    run_in_process,
    weights_of,
    write_recipe,
    write_texts,
)
from training import train_lm
from training.language_models.model_setup import build_model
from training.language_models.recipe import DataArguments, ModelArguments, parse_recipe
from training.language_models.text_batches import build_batches, encode_text
from training.language_models.validation import HeldOutText, held_out_sentences
from training.loop import run as loop
from training.loop.task import ProcessShard
from training.toy_english import write_toy_corpus

NT_ASGD = ["--optimizer", "nt-asgd", "--learning_rate", "2", "--nonmonotone_interval", "1"]
SGD = ["--optimizer", "sgd", "--learning_rate", "2", "--schedule", "warmup_stable_decay", "--decay_steps", "4"]
PLATEAU = ["--optimizer", "adam", "--adam_beta1", "0", "--learning_rate", "0.01", "--schedule", "plateau",
           "--independent_sentences", "true"]  # fmt: skip
RNN = {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2}
ADAMW = ["--optimizer", "adamw", "--learning_rate", "0.02", "--schedule", "cosine", "--warmup_steps", "3"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Working directory with `recipe.yaml`, `train.txt`, `valid.txt` and `gold.mrg`."""
    monkeypatch.chdir(tmp_path)
    write_texts(train=60, valid=12)
    Path("gold.mrg").write_text(GOLD_TREES)
    # The paths are absolute because `train_until` counts files with relative paths.
    write_recipe(train_files=[f"{tmp_path}/train.txt"], validation_files=[f"{tmp_path}/valid.txt"])
    return tmp_path


train = partial(run_in_process, train_lm.main)


def test_a_run_writes_loadable_checkpoints_a_log_and_results(project):
    data = ["--test_files", "valid.txt", "--gold_trees", "gold.mrg"]
    results = train("run", *ADAMW, *data, "--trackers", "tensorboard")
    tokenizer = AutoTokenizer.from_pretrained("run/best")
    model = AutoModelForCausalLM.from_pretrained("run/best")
    assert isinstance(model, ONLSTMForCausalLM)
    assert AutoModelForCausalLM.from_pretrained("run/last").num_parameters() == results["parameters"]
    assert AutoTokenizer.from_pretrained("run/last").get_vocab() == tokenizer.get_vocab()
    assert len(model.parse(["the big cat sees a dog"], tokenizer)[0].words) == 6

    lines = Path("valid.txt").read_text().splitlines()
    stream = [token for line in lines for token in [*tokenizer(line)["input_ids"], tokenizer.eos_token_id]]
    perplexities = [stream_log_likelihood(model, stream, rows).perplexity for rows in (3, 1)]
    assert [results["validation_perplexity"], results["test_perplexity"]] == pytest.approx(perplexities)
    gold = gold_trees_from_brackets(Path("gold.mrg").read_text().splitlines())
    trees = model.parse([list(tree.words) for tree in gold], tokenizer)
    assert results["parsing"]["sentence_f1"] == score_parses(trees, gold).sentence_f1
    assert json.loads(Path("run/results.json").read_text()) == results
    assert results["training_seconds"] > 0
    assert results["recipe"]["batch_size"] == 4 and results["recipe"]["model"]["hidden_size"] == 12

    losses = log_of("run", "loss")
    assert [entry["step"] for entry in losses] == list(range(1, results["updates"] + 1))
    assert all(entry["perplexity"] == pytest.approx(math.exp(entry["loss"])) for entry in losses)
    validations = log_of("run", "validation_perplexity", "parsing_f1")
    assert [entry["epoch"] for entry in validations] == [1, 2]
    best = min(validations, key=lambda entry: entry["validation_perplexity"])
    for layer, f1 in results["sentence_f1_by_layer"].items():
        assert best[f"parsing_f1_{layer.replace(' ', '_')}"] == pytest.approx(100 * f1["right"])
    assert best["parsing_f1"] == pytest.approx(100 * results["parsing"]["sentence_f1"])
    assert min(entry["validation_perplexity"] for entry in validations) == pytest.approx(perplexities[0], rel=1e-5)
    assert list(Path("run").rglob("events.out.tfevents.*"))


def test_the_stream_carries_its_state_and_detaches_it(project, monkeypatch):
    states, outputs = [], []
    forward = ONLSTMForCausalLM.forward

    def spied(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        if self.training:
            states.append(kwargs["state"])
            outputs.append(output.state)
        return output

    monkeypatch.setattr(ONLSTMForCausalLM, "forward", spied)
    train("run", *ADAMW, "--random_bptt", "false")
    per_epoch = len(states) // 2
    assert [number for number, state in enumerate(states) if state is None] == [0, per_epoch]
    for before, state in zip(outputs, states[1:], strict=False):
        if state is not None:
            for layer, expected in zip(state.layers, before.layers, strict=True):
                for tensor, value in zip(layer, expected, strict=True):
                    assert torch.equal(tensor, value) and not tensor.requires_grad


def test_independent_sentences_are_trained_and_scored_separately(project):
    results = train("run", *ADAMW, "--independent_sentences", "--test_files", "valid.txt")
    tokenizer = AutoTokenizer.from_pretrained("run/best")
    model = AutoModelForCausalLM.from_pretrained("run/best")
    scores = [
        stream_log_likelihood(model, [*tokenizer(line)["input_ids"], tokenizer.eos_token_id])
        for line in Path("valid.txt").read_text().splitlines()
    ]
    loss = -sum(score.total_log_likelihood for score in scores) / sum(score.num_tokens for score in scores)
    assert results["validation_perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
    assert results["test_perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
    assert results["updates"] == 2 * (60 // 4)


def test_lines_without_a_token_do_not_count_as_independent_sentences(tmp_path):
    tokenizer = build_word_tokenizer(["the cat likes a bird"], drop_punctuation=True)
    model = build_model(ModelArguments(model={"embedding_size": 8, "hidden_size": 12, "chunk_size": 4}), tokenizer)
    scores = []
    for name, text in {"all": "the cat\n...\na bird\n", "words": "the cat\na bird\n"}.items():
        (tmp_path / name).write_text(text)
        data = DataArguments(validation_files=[str(tmp_path / name)], independent_sentences=True)
        sentences = held_out_sentences(data)["validation"]
        text = HeldOutText(sentences, encode_text(sentences, tokenizer, "text", "validation"), tokenizer, True)
        scores.append(text.score(model, batch_size=2))
    assert scores[0].num_tokens == scores[1].num_tokens == 6
    assert scores[0].total_log_likelihood == pytest.approx(scores[1].total_log_likelihood)


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_a_dataset_folder_with_gold_trees_in_a_column(project, monkeypatch, streaming):
    datasets = library("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", project / "cache")
    write_toy_corpus(project / "dataset", num_train=60, num_validation=5, num_test=5)
    write_recipe(train_files=None, validation_files=None)
    options = ["--dataset", "dataset", "--gold_tree_column", "tree", "--streaming", streaming, "--max_steps", "12"]
    results = train("run", *ADAMW, *options, "--num_epochs", "99", "--eval_every_steps", "6")
    assert results["updates"] == 12
    assert results["parsing"]["num_sentences"] == 5
    first, second = log_of("run", "validation_loss", "parsing_f1")
    assert second["validation_loss"] < first["validation_loss"]


def test_learning_rates_follow_the_schedule(project):
    train("run", *ADAMW, "--random_bptt", "false", "--max_steps", "8")
    rates = [entry["learning_rate"] for entry in log_of("run", "learning_rate")]
    expected = [1 / 3, 2 / 3, 1, *(0.5 + 0.5 * math.cos(math.pi * n / 5) for n in range(5))]
    assert rates == pytest.approx([0.02 * factor for factor in expected])


def spy_on_updates(monkeypatch):
    """Returns a list that collects the weights after every update of later runs."""
    iterates = []
    update = loop.TrainingRun.update

    def spied(self, batches):
        update(self, batches)
        model = self.accelerator.unwrap_model(self.model)
        iterates.append({name: value.detach().clone() for name, value in model.state_dict().items()})

    monkeypatch.setattr(loop.TrainingRun, "update", spied)
    return iterates


@pytest.mark.parametrize("optimizer", [NT_ASGD, SGD, ADAMW], ids=["nt-asgd", "sgd", "adamw"])
def test_finetuning_averages_from_the_start_and_evaluates_the_mean(project, monkeypatch, optimizer):
    train("first", *NT_ASGD, "--num_epochs", "1")
    iterates = spy_on_updates(monkeypatch)
    options = ["--init_from", "first/best", "--average_from_start", "--num_epochs", 1, "--model.input_dropout", 0.2]
    write_recipe(model=None)
    results = train("second", *optimizer, *options)
    start = weights_of("first", "best")
    for name, value in weights_of("second", "last").items():
        mean = torch.stack([start[name], *(iterate[name] for iterate in iterates)]).double().mean(dim=0)
        torch.testing.assert_close(value.double(), mean, rtol=1e-5, atol=1e-6)
        assert torch.equal(weights_of("second", "best")[name], value)
        assert torch.equal(weights_of("second", "last/training_state")[name], iterates[-1][name])
    assert AutoModelForCausalLM.from_pretrained("second/last").config.input_dropout == 0.2
    (validation,) = log_of("second", "validation_perplexity")
    assert validation["averaged_steps"] == len(iterates) + 1
    assert results["validation_perplexity"] == pytest.approx(validation["validation_perplexity"], rel=1e-5)


def test_a_run_with_a_mean_can_resume_with_a_moving_average(project, monkeypatch):
    updates = train("run", *NT_ASGD, "--average_from_start", "--num_epochs", "1")["updates"]
    expected = {name: value.double() for name, value in weights_of("run", "last").items()}  # the mean so far
    iterates = spy_on_updates(monkeypatch)
    results = train("run", *NT_ASGD, "--average_from_start", "--average_decay", "0.5", "--num_epochs", "2", "--resume")
    for iterate in iterates:
        expected = {name: 0.5 * value + 0.5 * iterate[name].double() for name, value in expected.items()}
    for name, value in weights_of("run", "last").items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)
    assert len(iterates) > 2
    change = {"step": updates, "field": "average_decay", "before": None, "after": 0.5}
    assert change in results["changes"]


def test_averaging_starts_when_validation_stalls_and_the_run_ends_when_it_stalls_again(project, monkeypatch):
    losses = [2.5, 2.3, 2.4, 2.4, 2.35, 2.2, 2.1, 2.0, 2.05, 2.15, 2.0]
    remaining = ({"validation_loss": loss, "validation_perplexity": math.exp(loss)} for loss in losses)
    monkeypatch.setattr(train_lm.LanguageModeling, "validate", lambda *_: next(remaining))
    iterates = spy_on_updates(monkeypatch)
    options = ["--nonmonotone_interval", "2", "--eval_every_steps", "2", "--num_epochs", "50"]
    results = train("run", *NT_ASGD, *options, "--stop_when_averaging_stalls")
    validations = log_of("run", "validation_loss")
    assert results["epochs"] == validations[-1]["epoch"] < 50
    # The fifth loss is worse than the best more than two validations ago (2.3), and the tenth too (2.1).
    assert [entry["validation_loss"] for entry in validations] == losses[:10]
    assert [entry["averaged_steps"] for entry in validations] == [0] * 5 + [3, 5, 7, 9, 11]
    for name, value in weights_of("run", "last").items():
        mean = torch.stack([iterate[name] for iterate in iterates[9:]]).double().mean(dim=0)
        torch.testing.assert_close(value.double(), mean, rtol=1e-5, atol=1e-6)
    best = torch.stack([iterate["lm_head.bias"] for iterate in iterates[9:16]]).double().mean(dim=0)
    torch.testing.assert_close(weights_of("run", "best")["lm_head.bias"].double(), best, rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped(project, monkeypatch):
    iterates = spy_on_updates(monkeypatch)
    train("run", *NT_ASGD, "--max_grad_norm", "0.01", "--random_bptt", "false", "--max_steps", "3")
    names = [name for name in iterates[0] if name != "lm_head.weight"]
    for before, after in zip(iterates, iterates[1:], strict=False):
        step = torch.cat([(after[name] - before[name]).flatten() for name in names])
        assert step.norm().item() == pytest.approx(2 * 0.01, rel=1e-2)


def test_accumulated_chunks_have_one_mean_over_their_tokens(project, monkeypatch):
    iterates = spy_on_updates(monkeypatch)
    options = ["--gradient_accumulation_steps", "2", "--max_grad_norm", "inf", "--weight_decay", "0", *NO_DROPOUT]
    penalties = ["--model.activation_regularization", "0", "--model.temporal_activation_regularization", "0"]
    train("run", *NT_ASGD, *options, *penalties, "--max_steps", "1")

    recipe = parse_recipe(command("run", *NT_ASGD, *options, *penalties))
    tokenizer = AutoTokenizer.from_pretrained("run/last")
    loop.set_seed(recipe.optimization.seed)
    model = build_model(recipe.model, tokenizer).train()
    batches = build_batches(recipe, tokenizer, ProcessShard(4)).batches(0)
    first, second = next(batches), next(batches)
    assert first.num_items != second.num_items
    one = model(input_ids=first.input_ids, shift_labels=first.shift_labels)
    two = model(input_ids=second.input_ids, shift_labels=second.shift_labels, state=one.state.detach())
    loss = (first.num_items * one.loss + second.num_items * two.loss) / (first.num_items + second.num_items)
    loss.backward()
    rate = 2 * (first.lr_scale + second.lr_scale) / 2
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(iterates[0][name], parameter.detach() - rate * parameter.grad, rtol=1e-4, atol=1e-6)
    (entry,) = log_of("run", "loss")
    assert entry["loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_the_last_update_of_an_epoch_uses_the_remaining_chunks(project):
    train("run", *NT_ASGD, "--random_bptt", "false", "--gradient_accumulation_steps", "3")
    progress = json.loads(Path("run/last/training_state/run.json").read_text())["progress"]
    num_tokens = len(Path("train.txt").read_text().split()) + 60
    num_chunks = math.ceil(num_tokens // 4 / 12)
    assert num_chunks % 3
    assert progress["step"] == 2 * math.ceil(num_chunks / 3)
    assert (progress["epoch"], progress["batch"]) == (2, 0)


def test_bfloat16_learns_nearly_the_same(project):
    train("full", *ADAMW)
    train("half", *ADAMW, "--mixed_precision", "bf16")
    full, half = (log_of(name, "validation_loss")[-1]["validation_loss"] for name in ("full", "half"))
    assert half == pytest.approx(full, rel=0.01) and half != full


def test_treebank_preprocessing_of_another_language_is_saved_with_the_checkpoint(project, caplog):
    """Punctuation is left out of text and trees, and sentences without words do not count."""
    Path("train.txt").write_text("O Gato , que dorme .\nA Ana vê 12 gatos !\n" * 20)
    Path("valid.txt").write_text("O Gato dorme .\n. . .\n")
    tree = "((fcl (np (art O) (n Gato)) (PUNCT ,) (vp (v vê) (np (num 12) (n Ratos))) (PUNCT .)))"
    Path("gold.mrg").write_text(f"{tree}\n((x (PUNCT .)))\n")
    options = ["--drop_punctuation", "true", "--lowercase", "true", "--digits_to_n", "true"]
    results = train("run", *ADAMW, *options, "--gold_trees", "gold.mrg", "--treebank_preset", "universal")
    assert results["parsing"]["num_sentences"] == 1
    assert results["parsing_unknown_words"] == pytest.approx(1 / 5)  # ratos
    assert results["validation_unknown_words"] == 0
    model, tokenizer = (kind.from_pretrained("run/best") for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert preprocessing_of(None, model.config.treebank_preprocessing) == PRESETS["universal"]
    assert ("." in tokenizer.get_vocab(), "gato" in tokenizer.get_vocab()) == (False, True)
    assert model.parse("O Gato, que dorme.", tokenizer).words == ("O", "Gato", "que", "dorme")

    finetuned = train("finetuned", *ADAMW, "--init_from", "run/best", "--gold_trees", "gold.mrg", "--min_count", "2")
    assert finetuned["parsing"]["num_sentences"] == 1
    assert "min_count of the recipe change nothing" in caplog.text
    dropped = ["--dropped_tags", "PUNCT", "n"]
    train("other", *ADAMW, *options, "--gold_trees", "gold.mrg", *dropped)
    remembered = AutoModelForCausalLM.from_pretrained("other/best").config.treebank_preprocessing
    assert remembered["dropped_tags"] == ["PUNCT", "n"]


@pytest.mark.parametrize("parts", ["bpe", "characters", None])
def test_subwords_reduce_unknown_words_and_trees_have_words(project, parts):
    Path("train.txt").write_text("o gato que dorme .\na rata vê o gato .\n" * 20)
    Path("valid.txt").write_text("o rato vê a gata , que dorme\n")
    Path("gold.mrg").write_text("((S (NP (art o) (n rato)) (VP (v vê) (NP (art a) (n gata))) (PUNCT .)))\n")
    options = ["--drop_punctuation", "true", *(["--subwords", parts] if parts else []), "--vocab_size", "30"]
    results = train("run", *ADAMW, *options, "--gold_trees", "gold.mrg", "--treebank_preset", "universal")
    assert results["parsing_unknown_words"] == pytest.approx(2 / 5 if parts is None else 0)
    model, tokenizer = (kind.from_pretrained("run/best") for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert len(tokenizer.tokenize("rato dorme")) == {"bpe": 3, "characters": 9, None: 2}[parts]
    assert model.parse("o rato , que dorme .", tokenizer).words == ("o", "rato", "que", "dorme")


@pytest.mark.parametrize("model_type", ["onlstm", "rnn"])
def test_a_changed_weight_dropout_keeps_the_predictions_of_a_checkpoint(project, model_type):
    if model_type == "rnn":
        write_recipe(model_type="rnn", model=RNN)
    train("first", *ADAMW, "--model.weight_dropout", 0.3, "--max_steps", 4)
    before, tokenizer = (loader.from_pretrained("first/best") for loader in (AutoModelForCausalLM, AutoTokenizer))
    changed = build_model(ModelArguments(init_from="first/best", model={"weight_dropout": 0.6}), tokenizer).eval()
    assert changed.config.weight_dropout == 0.6
    ids = torch.arange(len(tokenizer)).unsqueeze(0)
    with torch.no_grad():
        torch.testing.assert_close(changed(ids).logits, before.eval()(ids).logits)


@pytest.mark.parametrize(
    "options",
    [
        [*ADAMW, "--save_every_steps", "2"],
        [*NT_ASGD, "--save_every_steps", "3", "--average_from_start"],
        [*NT_ASGD, "--eval_every_steps", "3", "--log_every_steps", "4"],
        [*ADAMW, "--save_every_steps", "2", "--gradient_accumulation_steps", "3"],
        [*ADAMW, "--save_every_steps", "2", "--average_from_start", "--average_decay", "0.9"],
        [*ADAMW, "--save_every_steps", "2", "--independent_sentences"],
        [*ADAMW, "--save_every_steps", "3", "--streaming", "--max_steps", "13", "--mixed_precision", "bf16"],
        [*SGD, "--save_every_steps", "3"],
    ],
    ids=["adamw", "averaging", "nt-asgd", "accumulation", "averaging-adamw", "sentences", "streaming", "sgd"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(project, monkeypatch, options):
    check_run(monkeypatch, options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [PLATEAU, NT_ASGD], ids=["sentences", "nt-asgd"])
def test_a_resumed_prpn_run_equals_an_uninterrupted_one(project, monkeypatch, options):
    write_recipe(model_type="prpn", model=RNN | {"num_slots": 4, "lookback": 2})
    check_run(monkeypatch, [*options, "--gold_trees", "gold.mrg"])
    assert log_of("parts", "loss")[-1]["loss"] < log_of("parts", "loss")[0]["loss"]
    assert "parsing_f1" in log_of("parts", "validation_loss")[-1]


def check_run(monkeypatch, options):
    check_resumption(monkeypatch, train, *options, stops=(4, 1, 3))
    results = Path("parts/results.json").read_text()
    train("parts", *options, "--resume")
    assert json.loads(Path("parts/results.json").read_text()) == json.loads(results)


def test_a_checkpoint_at_the_last_step_is_still_validated(project, monkeypatch):
    options = [*ADAMW, "--max_steps", "4", "--save_every_steps", "2"]
    train("whole", *options)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(loop.TrainingRun, "validate", lambda self: (_ for _ in ()).throw(Stopped))
        train("parts", *options)
    assert not Path("parts/best").exists()
    train("parts", *options, "--resume")
    assert_same_run("parts", "whole")
    assert len(log_of("whole", "validation_loss")) == 1


@pytest.mark.parametrize("kept", ["last", "best", "results.json"])
def test_an_earlier_run_is_not_overwritten(project, kept):
    train("run", *ADAMW, "--max_steps", 2)
    for path in Path("run").iterdir():
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = contents("run")
    with pytest.raises(FileExistsError, match=rf"run holds an earlier run \({kept}\): pass --resume"):
        train("run", *ADAMW)
    assert contents("run") == before


@pytest.mark.parametrize(
    ("speed", "precision", "times"), [(0.2, "bf16", 1), (1.0, "bf16", 1), (0.2, "no", 0), (1.3, "bf16", 0)]
)
def test_slow_bf16_on_a_cpu_is_reported_once(project, monkeypatch, capsys, speed, precision, times):
    monkeypatch.setattr("training.loop.run.bfloat16_speed", lambda: speed)
    train("run", *ADAMW, "--max_steps", 2, "--eval_every_steps", 1, "--mixed_precision", precision)
    assert capsys.readouterr().out.count("--mixed_precision no is likely to be faster") == times


def test_divergence_stops_the_run_and_keeps_the_last_good_checkpoint(project):
    options = ["--max_grad_norm", "inf", "--save_every_steps", "1", "--warmup_steps", "4"]
    with pytest.raises(ValueError, match=r"diverged before update \d+: .* last good checkpoint is run/last"):
        train("run", "--learning_rate", "1e38", *options)
    assert all(value.isfinite().all() for value in weights_of("run").values())
    assert not Path("run/results.json").exists()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_weights_are_never_saved(project, monkeypatch, bad):
    update = loop.TrainingRun.update

    def spoiled(self, batches):
        update(self, batches)
        if self.progress.step == 4:
            self.accelerator.unwrap_model(self.model).lm_head.bias.data[0] = bad

    monkeypatch.setattr(loop.TrainingRun, "update", spoiled)
    with pytest.raises(ValueError, match="before update 4: the weights contain NaN or infinity"):
        train("run", *ADAMW, "--eval_every_steps", "2")
    for name in ("best", "last", "last/training_state"):
        assert all(value.isfinite().all() for value in weights_of("run", name).values())
    assert json.loads(Path("run/last/training_state/run.json").read_text())["progress"]["step"] == 2


def foreign_checkpoint(folder):
    """Writes a checkpoint with another vocabulary, and its tokenizer."""
    tokenizer = build_word_tokenizer([" ".join(WORDS[:8])])
    model = KINDS["onlstm"].make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_run_shorter_than_its_warm_up_prints_a_warning(project, capsys):
    train("cold", "--max_steps", 2, "--warmup_steps", 2)
    assert "never leaves its warm-up" in capsys.readouterr().out
    train("warm", "--max_steps", 2, "--warmup_steps", 1)
    assert "warm-up" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--gold_trees nowhere.mrg", "no file nowhere.mrg"),
        ("--gold_trees valid.txt", "valid.txt"),
        ("--train_files empty.txt", "empty.txt is empty"),
        ("--validation_files empty.txt", "empty.txt is empty"),
        ("--train_files latin.txt", "latin.txt is not UTF-8"),
        ("--batch_size 1000", "too few for 1000 rows"),
        ("--model.hidden_sise 4", "no fields hidden_sise"),
        ("--model.hidden_size many", "hidden_size must be"),
        ("--model.input_dropout many", "input_dropout"),
        ("--model.chunk_size 5", "chunk_size=5 must divide"),
        ("--model.vocab_size 5", "it has 17 tokens, the model 5"),
        ("--model_type nonsense", 'type "nonsense" cannot be .* one of onlstm, prpn, rnn, or one of --model_code'),
        ("--model_type gpt2", 'models of type "gpt2" cannot be trained here'),
        ("--model_code wrong.py", r"(?s)model_code wrong.py cannot be run: .*wrong.py\", line 2.*SyntaxError"),
        ("--model_code leaves.py", r"(?s)model_code leaves.py cannot be run: .*leaves.py\", line 2.*SystemExit: 3"),
        (
            "--model_code slip.py",
            r"(?s)model_code slip.py cannot be run: .*slip.py\", line 1.*NameError: name 'torhc'",
        ),
        ("--train_files wide.txt", "wide.txt, line 1, has NUL characters, as UTF-16 without a byte order mark"),
        ("--trackers nonsense", "tracker nonsense is not known or not installed"),
        ("--tokenizer nowhere", "tokenizer nowhere cannot be loaded"),
        ("--init_from nowhere", "the checkpoint nowhere cannot be loaded"),
        ("--init_from broken", "broken cannot be loaded"),
        ("--init_from foreign --tokenizer bigger", "tokenizer does not fit the model: it has 17 tokens"),
        ("--init_from foreign --model.hidden_sise 4", "no fields hidden_sise"),
        ("--init_from partial", "lacks weights: lm_head.bias"),
        ("--init_from nan --tokenizer foreign", "nan contain NaN or infinity"),
        ("--init_from foreign --tokenizer other", "different ids of <eos>"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(project, options, message):
    Path("empty.txt").write_text("\n \n")
    Path("latin.txt").write_bytes("the café\n".encode("latin-1") * 50)
    Path("wide.txt").write_bytes("the cat\n".encode("utf-16-le") * 50)
    for name, code in {"wrong": "a = 1\ndef f(:", "leaves": "import sys\nsys.exit(3)", "slip": "torhc.cat"}.items():
        Path(f"{name}.py").write_text(code)
    if "--init_from" in options:
        write_recipe(model=None)
        foreign_checkpoint("foreign")
        foreign_checkpoint("broken")
        Path("broken/model.safetensors").write_bytes(b"no weights")
        foreign_checkpoint("partial")
        weights = load_file("partial/model.safetensors")
        del weights["lm_head.bias"]
        save_file(weights, "partial/model.safetensors", metadata={"format": "pt"})
        model = KINDS["onlstm"].make(vocab_size=11, eos_token_id=0)
        torch.nn.init.constant_(model.lm_head.bias, math.nan)
        model.save_pretrained("nan")
        build_word_tokenizer(vocabulary=["the", "<unk>", "<eos>", "<pad>"]).save_pretrained("other")
        build_word_tokenizer([" ".join(WORDS)]).save_pretrained("bigger")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train("run", *NT_ASGD, *options.split())
    assert not Path("run").exists()


@pytest.mark.slow
def test_plain_text_needs_no_optional_library_and_errors_have_one_line(project, project_root):
    script = project_root / "training" / "train_lm.py"
    code = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(['datasets', 'evaluate', 'nltk']))\n"
        f"sys.argv = ['train_lm.py', *{command('run', *ADAMW, '--max_steps', 4)!r}]\n"
        f"sys.path.insert(0, {str(script.parent)!r})\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "assert sys.modules['datasets'] is None\n"
        "sys.argv += ['--resume', '--max_steps', '40', '--learning_rate', '1e38', '--max_grad_norm', 'inf']\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    assert Path("run/results.json").exists(), done.stderr
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "train_lm.py: training diverged before update" in done.stderr.splitlines()[-1]
    # The progress bar has loss, perplexity, speed and remaining time.
    assert all(text in done.stderr for text in ("4/4", "loss=", "ppl=", "tokens_per_s=", "00:00<"))


def train_until(arguments, fatal_event):
    """Trains, and kills its process at the nth file system event in `run`, or (negative n) in the nth update."""
    events = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}
    seen = 0

    def count():
        nonlocal seen
        seen += 1
        if seen == abs(fatal_event):
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, values):
        # Within rmtree, paths are relative to an open folder.
        paths = [os.fsdecode(value) for value in values if isinstance(value, str | bytes | os.PathLike)]
        if event in events and any("run" in Path(path).parts or not os.path.isabs(path) for path in paths[:2]):
            count()

    if fatal_event > 0:
        sys.addaudithook(hook)
    elif fatal_event < 0:
        clip = loop.Accelerator.clip_grad_norm_

        def counted(self, *args):
            count()
            return clip(self, *args)

        loop.Accelerator.clip_grad_norm_ = counted
    with open(os.devnull, "w") as sys.stderr, open(os.devnull, "w") as sys.stdout:
        train_lm.main(arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [[*ADAMW, "--save_every_steps", "3"], [*NT_ASGD, "--save_every_steps", "3", "--average_from_start"]],
    ids=["adamw", "averaging"],
)
def test_a_run_killed_anywhere_and_resumed_equals_an_uninterrupted_one(project, project_root, monkeypatch, options):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    context = forked_context()

    def run(name, fatal_event):
        arguments = command(project / name, *options, "--resume")
        process = context.Process(target=train_until, args=(arguments, fatal_event))
        process.start()
        process.join(timeout=100)
        return process.exitcode

    assert run("whole", 0) == 0
    # The first events are in the first write of best/ and last/; later ones follow the reading of last/.
    fatal_events = [2, 9, 31, 47, -2, 55, 60, 83, 97, 111, -4, 120, 131, 148, 163, 190, -3, 222]
    exit_codes = [run("run", fatal_event) for fatal_event in fatal_events]
    assert exit_codes.count(-signal.SIGKILL) > 12 and set(exit_codes) <= {0, -signal.SIGKILL}
    assert run("run", 0) == 0
    assert_same_run("run", "whole")
    assert names_in("run") == ["best", "curves.svg", "last", "log.jsonl", "results.json"]


def launch_by_accelerate(folder, arguments):
    os.chdir(folder)
    enter_process("output.txt", {"ACCELERATE_USE_CPU": "true"})
    launch_command(launch_command_parser().parse_args(arguments))


def launch_two(script, arguments):
    """Runs a script by `accelerate launch` in two processes on the CPU; with `--cpu` it would start only one."""
    launcher = ["--multi_gpu", "--num_processes", "2", "--main_process_port", str(free_port()), str(script)]
    process = forked_context().Process(target=launch_by_accelerate, args=(os.getcwd(), [*launcher, *arguments]))
    process.start()
    process.join(timeout=100)
    assert process.exitcode == 0, Path("output.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [NT_ASGD, ["--optimizer", "adamw", "--learning_rate", "0.02", "--independent_sentences"]],
    ids=["stream", "sentences"],
)
def test_two_processes_equal_one_with_twice_the_batch(project, project_root, options):
    options = [*options, *NO_DROPOUT, "--gold_trees", "gold.mrg"]
    train("one", *options, "--max_steps", 12)
    begin = command("two", *options, "--batch_size", 2, "--max_steps", 5)
    if "--independent_sentences" in options:
        run_ranks(2, train_lm.main, begin)
    else:
        launch_two(project_root / "training" / "train_lm.py", begin)
    assert Path("two/last/training_state/process_1.pt").exists()
    run_ranks(2, train_lm.main, command("two", *options, "--batch_size", 2, "--max_steps", 12, "--resume"))
    losses, expected = log_of("two", "loss"), log_of("one", "loss")
    assert [entry["loss"] for entry in losses] == pytest.approx([entry["loss"] for entry in expected], abs=1e-4)
    assert len(losses) == 12
    assert log_of("two", "parsing_f1")[-1] == pytest.approx(log_of("one", "parsing_f1")[-1], rel=1e-4)
    assert json.loads(Path("two/results.json").read_text())["updates"] == 12
