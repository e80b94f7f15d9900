"""Resuming: restored state, refused and recorded changes, and failed runs."""

import fcntl
import json
import os
import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from onlstm_hf.hub.export import folder_files
from onlstm_hf.utils.files import write_json
from tests.helpers.folders import contents, full_disk
from tests.helpers.training_runs import GOLD_TREES, log_of, run_in_process, write_recipe, write_texts
from training import train_lm, train_logic
from training.language_models.recipe import parse_recipe
from training.loop import checkpointing, training_log
from training.loop import run as loop
from training.loop.checkpointing import CHECKSUMS, write_checksums
from training.train_logic import parse_logic_recipe

RECIPE = {
    **{"learning_rate": 2, "max_steps": 2, "average_from_start": True},
    **{"test_files": ["test.txt"], "gold_trees": "gold.mrg"},
}
LOGIC_RECIPE = """
model_type: rnn
model: {embedding_size: 8, hidden_size: 12, num_hidden_layers: 1, layer_sizes: [12], tie_word_embeddings: false}
num_pairs: 300
max_steps: 2
max_train_operators: 4
batch_size: 32
num_threads: 1
"""
# Another value for each fixed field.
OTHER_VALUES = {
    "model_type": "rnn", "model.hidden_size": 16, "weight_decay": 0.1, "adam_beta1": 0.5, "adam_beta2": 0.5,
    "adam_epsilon": 0.1, "batch_size": 2, "gradient_accumulation_steps": 2, "seed": 3,
}  # fmt: skip
OTHER_TEXT_VALUES = {
    "tokenizer": "other", "vocab_size": 9, "min_count": 2, "lowercase": True, "digits_to_n": True, "split": "treebank",
    "drop_punctuation": True, "subwords": "bpe",
    "streaming": True, "independent_sentences": True, "bptt_length": 9, "random_bptt": False,
    "max_sentence_length": 9, "tree_batch_size": 9, "init_from": "other",
    "optimizer": "adamw", "average_from_start": False,
}  # fmt: skip
OTHER_PAIR_VALUES = {"num_pairs": 200, "pairs_seed": 1, "max_train_operators": 5, "holdout_every": 5}


def run(program, *arguments):
    return run_in_process(program.main, "run", *arguments, recipe=f"{program.__name__.rpartition('.')[2]}.yaml")


train = partial(run, train_lm)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Folder with text, recipes, and runs of two updates of a language model and of a classifier."""
    folder = tmp_path_factory.mktemp("begun")
    write_texts(folder, train=60, valid=12, test=5)
    (folder / "gold.mrg").write_text(GOLD_TREES)
    write_recipe(folder / "train_lm.yaml", **RECIPE)
    (folder / "train_logic.yaml").write_text(LOGIC_RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train()
        run(train_logic, "--output_dir", "logic")
    return folder


@pytest.fixture
def project(begun, tmp_path, monkeypatch):
    """Working directory with a copy of `begun`."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpointing, "LONGEST_WAIT", 0.1)


def as_arguments(name, value):
    return [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]


def test_every_fixed_field_refuses_another_value_and_names_both(project):
    tasks = [
        (train_lm, "run", parse_recipe(["train_lm.yaml", "--output_dir", "run"]), OTHER_VALUES | OTHER_TEXT_VALUES),
        (train_logic, "logic", parse_logic_recipe(["train_logic.yaml", "--output_dir", "logic"]),
         OTHER_VALUES | OTHER_PAIR_VALUES | {"model_type": "onlstm"}),
    ]  # fmt: skip
    for program, folder, recipe, others in tasks:
        before = contents(folder)
        assert {name.partition(".")[0] for name in others} == recipe.fields("fixed").keys()
        for name, value in others.items():
            with pytest.raises(ValueError) as error:
                run(program, "--output_dir", folder, "--resume", *as_arguments(name, value))
            field = name.partition(".")[0]
            was = recipe.fields()[field]
            now = {**was, "hidden_size": value} if field == "model" else value
            assert f"{field} was {was} and is {now} now" in str(error.value)
        assert contents(folder) == before


def test_a_changed_recorded_field_takes_effect_and_is_recorded(project, capsys):
    results = train("--resume", "--max_steps", 3, "--learning_rate", 0.5, "--random_bptt", "true")
    assert "learning_rate was 2.0 and is 0.5 from here on" in capsys.readouterr().out
    changes = [
        {"step": 2, "field": "learning_rate", "before": 2.0, "after": 0.5},
        {"step": 2, "field": "max_steps", "before": 2, "after": 3},
    ]
    assert sorted(results["changes"], key=lambda change: change["field"]) == changes
    rates = [entry["learning_rate"] for entry in log_of("run", "learning_rate")]
    assert max(rates[:2]) > 1 > rates[2]
    results = train("--resume", "--max_steps", 4, "--learning_rate", 0.5, "--log_every_steps", 3)
    assert [change["step"] for change in results["changes"]] == [2, 2, 3]
    assert results["recipe"]["learning_rate"] == 0.5 and results["recipe"]["log_every_steps"] == 3


@pytest.mark.usefixtures("project")
def test_a_run_that_ended_with_an_epoch_validates_once_there():
    epochs = ["--train_files", "valid.txt", "--batch_size", "2", "--random_bptt", "no", "--num_epochs", "2"]
    straight = run(train_lm, *epochs, "--max_steps", "99", "--output_dir", "straight")
    end_of_epoch = str(straight["updates"] // 2)
    for max_steps in (end_of_epoch, "99"):
        results = run(train_lm, *epochs, "--max_steps", max_steps, "--output_dir", "halves", "--resume")
        assert results["epochs"] == (1 if max_steps == end_of_epoch else 2)
    steps, expected = ([entry["step"] for entry in log_of(name, "validation_loss")] for name in ("halves", "straight"))
    assert steps == expected and len(expected) == 2


def edit_state(edit, folder="run/last"):
    """Edits the training state of a checkpoint, as if another version had written it."""
    path = Path(folder, "training_state/run.json")
    state = json.loads(path.read_text())
    edit(state)
    path.write_text(json.dumps(state))
    Path(folder, CHECKSUMS).unlink()
    write_checksums(Path(folder))


def test_a_training_state_with_other_fields_resumes_but_not_another_version(project):
    edit_state(lambda state: state["recipe"].pop("average_from_start"))  # counts as its default; true in this run
    with pytest.raises(ValueError, match="average_from_start was False and is True now"):
        train("--resume", "--max_steps", 3)
    edit_state(lambda state: state["recipe"].update(average_from_start=True))
    edit_state(lambda state: state["progress"].update(first_kept_loss=0))
    assert train("--resume", "--max_steps", 3)["updates"] == 3
    edit_state(lambda state: state.update(version=99))
    with pytest.raises(ValueError, match="run/last is of version 99, and this package resumes"):
        train("--resume", "--max_steps", 4)


@pytest.mark.parametrize(
    ("name", "part"),
    [("train.txt", "training text"), ("valid.txt", "validation text"), ("test.txt", "test text"),
     ("gold.mrg", "gold trees")],
)  # fmt: skip
def test_changed_data_are_refused(project, name, part):
    path, before = Path(name), contents("run")
    path.write_text(path.read_text().replace("dog", "cat", 1))
    with pytest.raises(ValueError, match=rf"the {part} changed since run/last was written .fingerprint \w+"):
        train("--resume", "--max_steps", 3)
    assert contents("run") == before


def test_streamed_text_that_changed_after_the_first_lines_is_refused(project, monkeypatch):
    monkeypatch.setattr("training.train_lm.NUM_STREAMED_LINES", 2)
    arguments = ["--output_dir", "streamed", "--streaming", "true"]
    train(*arguments)
    path = Path("train.txt")
    text = path.read_text()
    last = text.splitlines(keepends=True)[-1]
    for changed in (text + "the dog sleeps\n", text.removesuffix(last) + "b" + last[1:]):  # other size, same size
        path.write_text(changed)
        with pytest.raises(ValueError, match="the bytes of the training text changed since streamed/last was written"):
            train("--resume", "--max_steps", 3, *arguments)
    path.write_text(text)
    assert train("--resume", "--max_steps", 3, *arguments)["updates"] == 3


def test_unconnected_processes_are_refused_with_a_hint(project, monkeypatch):
    # As torchrun sets it. Old versions of Accelerate then write more variables, and ask for an address.
    monkeypatch.setattr(os, "environ", os.environ | {"WORLD_SIZE": "2"})
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    with pytest.raises(ValueError, match="one of 2 processes.*ACCELERATE_USE_CPU=true|`MASTER_ADDR` env was not set"):
        train("--output_dir", "new")
    assert not Path("new").exists()


def test_changed_model_code_is_refused(project):
    code = Path("code_of_the_model.py")
    code.write_text("SIZE = 1\n")
    arguments = ["--output_dir", "coded", "--model_code", code]
    train(*arguments)
    moved = code.rename("moved_code_of_the_model.py")
    train("--resume", "--max_steps", 3, *arguments[:3], moved)
    moved.write_text("SIZE = 2\n")
    with pytest.raises(ValueError, match="the lines of the model_code changed since coded/last was written"):
        train("--resume", "--max_steps", 4, *arguments[:3], moved)


def test_data_may_move_and_test_text_may_be_added(project):
    fingerprints = train("--resume")["fingerprints"]
    assert fingerprints.keys() == {"training text", "validation text", "test text", "gold trees"}
    for name in ("train", "valid"):
        Path(f"{name}.txt").rename(f"moved_{name}.txt")
    moved = ["--train_files", "moved_train.txt", "--validation_files", "moved_valid.txt"]
    write_recipe("train_lm.yaml", **RECIPE | {"test_files": None})
    assert "test_perplexity" not in train("--resume", "--max_steps", 3, *moved)
    results = train("--resume", "--max_steps", 3, *moved, "--test_files", "valid.txt", "--test_files", "test.txt")
    assert results["fingerprints"] == fingerprints and results["test_perplexity"] > 1


@pytest.mark.parametrize("folder", ["run/last", "run/best"])
def test_a_flipped_bit_in_any_checkpoint_file_is_detected_and_named(project, monkeypatch, folder):
    names = [line.split("  ")[1] for line in Path(folder, CHECKSUMS).read_text().splitlines()]
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= set(names)
    assert CHECKSUMS not in folder_files(folder)  # which are uploaded
    states = {"optimizer.bin", "averaged.pt", "process_0.pt", "random_states_0.pkl", "model.safetensors", "run.json"}
    assert folder == "run/best" or {f"training_state/{name}" for name in states} <= set(names)

    def refused(message):
        with pytest.raises(ValueError, match=rf"the checkpoint {folder} is damaged: {message}.*--init_from"):
            train("--resume")

    with monkeypatch.context() as patch:
        patch.setattr(loop.TrainingRun, "update", lambda *_: pytest.fail("it trained"))
        for name in names:
            path = Path(folder, name)
            whole = path.read_bytes()
            flipped = bytearray(whole)
            flipped[len(whole) // 2] ^= 4
            path.write_bytes(flipped)
            refused(name)
            path.unlink()
            refused(name)
            path.write_bytes(whole)
        Path(folder, "stray.txt").touch()
        refused("stray.txt")
        Path(folder, "stray.txt").unlink()
        checksums = Path(folder, CHECKSUMS).rename("kept")
        refused(names[0])
        Path(folder, CHECKSUMS).write_text("nonsense")
        refused(rf"{CHECKSUMS}, .*{names[-1]}")
        checksums.rename(Path(folder, CHECKSUMS))
    assert train("--resume")["updates"] == 2


@pytest.mark.parametrize("torn", ["in the last line", "to nothing", "removed"])
def test_a_truncated_log_is_cut_back_to_complete_lines(project, torn):
    path = Path("run/log.jsonl")
    whole = path.read_bytes()
    lines = whole.splitlines()
    path.write_bytes(whole[:-3] if torn == "in the last line" else b"")
    if torn == "removed":
        path.unlink()
    train("--resume", "--max_steps", 4)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    kept = len(lines) - 1 if torn == "in the last line" else 0
    assert entries[:kept] == [json.loads(line) for line in lines[:kept]] and entries[-1]["step"] == 4
    assert all(entry["step"] > 2 for entry in entries[kept:])


def test_the_log_is_synced_before_a_checkpoint_records_its_size(project, monkeypatch):
    events = []
    monkeypatch.setattr(training_log, "sync", lambda path: events.append(path.name))
    monkeypatch.setattr(loop, "write_json", lambda path, content: events.append(content) or write_json(path, content))
    train("--resume", "--max_steps", 4)
    for before, after in pairwise(events):
        assert isinstance(before, dict) or (before == "log.jsonl" and after["progress"]["log_size"] > 0)
    assert len(events) == 2 * len([event for event in events if isinstance(event, dict)]) > 0


def test_a_second_run_in_the_folder_is_refused_in_one_sentence(project):
    for folder, arguments in (("run", ["--resume"]), ("new", [])):
        Path(folder).mkdir(exist_ok=True)
        before = contents(folder)
        with open(Path(folder, ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(ValueError, match=f"^{folder} is in use: another process is at work in it$"):
                run(train_lm, "--output_dir", folder, *arguments)
        Path(folder, ".lock").unlink()
        assert contents(folder) == before
    assert train("--resume")["updates"] == 2


def test_the_last_lines_of_output_have_scores_and_paths(project, capsys):
    results = train("--resume")
    scores = [f"{name} perplexity {results[f'{name}_perplexity']:.2f}" for name in ("validation", "test")]
    baselines = ", ".join(f"{name} {100 * f1:.1f}" for name, f1 in results["baselines"].items())
    f1 = f"sentence F1 {100 * results['parsing']['sentence_f1']:.1f} on gold trees ({baselines})"
    *_, first, second, third = capsys.readouterr().out.splitlines()
    assert first == ", ".join([*scores, f1]) and "right branching" in baselines
    assert [second.split(), third.split()] == [["checkpoint", "run/best"], ["results", "run/results.json"]]
    results = run(train_logic, "--output_dir", "logic", "--resume")
    last = capsys.readouterr().out.splitlines()[-3:]
    assert last[0].endswith(f"test accuracy {100 * results['test']['accuracy']:.1f} %")
    assert last[2].split() == ["results", "logic/results.json"]


def test_a_full_disk_leaves_the_last_checkpoint(project):
    before = contents("run/last")
    with full_disk(), pytest.raises(SafetensorError, match="too large"):
        train("--resume", "--max_steps", 4, "--save_every_steps", 1)
    assert contents("run/last") == before
    assert {path.name for path in Path("run").iterdir()} >= {"best", "last", "log.jsonl"}
    assert not [path for path in Path("run").iterdir() if path.name.startswith(".")]
    assert train("--resume", "--max_steps", 4)["updates"] == 4


def test_a_run_that_failed_before_its_first_checkpoint_can_be_restarted(project, monkeypatch):
    shutil.rmtree("run")
    with pytest.raises(ValueError, match="There is no checkpoint yet"):
        train("--learning_rate", 1e38, "--max_grad_norm", "inf")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train_lm.LanguageModeling, "loss", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        train()
    assert train("--max_steps", 1)["updates"] == 1


def test_a_state_of_a_version_with_one_logged_loss_resumes(project):
    shutil.copytree("run", "old")
    path = Path("old/last/training_state/process_0.pt")
    state = torch.load(path, weights_only=True)
    del state["log"]["summed_further_losses"]
    torch.save(state, path)
    edit_state(lambda _: None, "old/last")
    for folder in ("run", "old"):
        train("--resume", "--max_steps", 4, "--output_dir", folder)
    assert Path("old/best/model.safetensors").read_bytes() == Path("run/best/model.safetensors").read_bytes()
