"""Runs of one recipe with several seeds, and their interruptions."""

import json
import re
import time
from pathlib import Path

import pytest

from onlstm_hf import ONLSTMConfig
from tests.helpers.training_runs import GOLD_TREES, assert_same_run, run_in_process, write_recipe, write_texts
from training import train_lm, train_seeds
from training.language_models.recipe import parse_recipe

RECIPE = {
    **{"bptt_length": 8, "batch_size": 2, "optimizer": "adamw", "learning_rate": 0.01, "num_epochs": 6},
    **{"log_every_steps": 2, "save_every_steps": 5, "output_dir": "runs"},
    **{"test_files": ["valid.txt"], "gold_trees": "gold.mrg"},
}
SLEEP = time.sleep
# Replaces train_lm.py in tests of the processes. The seed is the number of steps; 13 fails, 14 is killed.
STAND_IN = """
import json, os, sys, time
from pathlib import Path
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
seed, folder, alive = int(options["--seed"]), Path(options["--output_dir"]), Path("alive.txt")
with Path("started.txt").open("a") as file:
    file.write(f"{seed} {options['--num_threads']} {os.environ['OMP_NUM_THREADS']}\\n")
if seed == 13:
    print("cannot do it", file=sys.stderr)
    sys.exit(3)
if seed == 14:
    os.kill(os.getpid(), 9)
Path(f"{seed}.alive").touch()
for step in range(seed):
    deadline = time.monotonic() + 20
    while Path("two").exists() and len(list(Path().glob("*.alive"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    with alive.open("a") as file:
        file.write(f"{len(list(Path().glob('*.alive')))}\\n")
    print(f"begins\\rupdate {step} of {seed}", flush=True)
    time.sleep(0.2)
    Path("two").unlink(missing_ok=True)
Path(f"{seed}.alive").unlink()
recipe = json.loads(Path("fields.json").read_text()) | {"num_epochs": int(options.get("--num_epochs", 6))}
results = {"validation_perplexity": 10.0 * seed, "test_perplexity": 5.0, "recipe": recipe}
results["sentence_f1_by_layer"] = {"layer 1": {"right": seed / 100, "none": 0.2}}
(folder / "results.json").write_text(json.dumps(results))
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(train=60, valid=12)
    Path("gold.mrg").write_text(GOLD_TREES)
    write_recipe(**RECIPE)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "fields.json").write_text(json.dumps(parse_recipe(["recipe.yaml"]).fields()))
    monkeypatch.setattr(train_seeds, "SCRIPT", tmp_path / "stand_in.py")
    monkeypatch.setattr(train_seeds, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(train_seeds, "SECONDS_BETWEEN_POLLS", 0.02)


def run_seeds(*arguments):
    return train_seeds.main(["recipe.yaml", "--seeds", *map(str, arguments)])


def test_parallel_runs_share_the_threads(stand_in, monkeypatch):
    monkeypatch.setattr(train_seeds, "num_cores", lambda: 5)
    Path("two").touch()
    write_recipe(**RECIPE, num_threads=None)
    assert run_seeds(1, 2, 3, "--at-once", 2) == 0
    assert max(map(int, Path("alive.txt").read_text().split())) == 2
    assert sorted(Path("started.txt").read_text().splitlines()) == ["1 2 2", "2 2 2", "3 2 2"]


def test_runs_that_fail_or_are_killed_do_not_stop_the_others(stand_in, capsys):
    assert run_seeds(13, 14, 1, 2, "--at-once", 4, "--results", "kept") == 1
    output = capsys.readouterr()
    (failure,) = [line for line in output.out.splitlines() if "seed 13 failed" in line]
    assert failure == "seed 13 failed with exit code 3: cannot do it (full output: runs/seed_13/output.txt)"
    assert "seed 14 was killed by signal 9" in output.out
    assert "not finished: 13, 14; the same command resumes" in output.err
    assert sorted(path.name for path in Path("kept").iterdir()) == ["seed_1.json", "seed_2.json"]
    table = [re.split(r"\s{2,}", line) for line in output.out.partition("\n\n")[2].splitlines()]
    assert table == [
        ["seed", "validation", "test", "F1 layer 1", "F1 layer 1, no bias"],
        ["1", "10.00", "5.00", "1.00", "20.00"],
        ["2", "20.00", "5.00", "2.00", "20.00"],
        ["mean", "15.00", "5.00", "1.50", "20.00"],
        ["s.d.", "7.07", "0.00", "0.71", "0.00"],
        ["min", "10.00", "5.00", "1.00", "20.00"],
        ["max", "20.00", "5.00", "2.00", "20.00"],
    ]


def test_finished_runs_are_kept_and_those_of_another_recipe_refused(stand_in, capsys):
    assert run_seeds(1, 2) == 0
    assert run_seeds(1, 2, 3, "--num_threads", 2) == 0
    assert [line.split()[0] for line in Path("started.txt").read_text().splitlines()] == ["1", "2", "3"]
    assert "seed 1 is already finished" in capsys.readouterr().out
    assert run_seeds(3, 1, 4, "--num_epochs", 7) == 1
    assert "seed_3 is a finished run with num_epochs 6, not 7" in capsys.readouterr().err
    assert len(Path("started.txt").read_text().splitlines()) == 3


def test_finished_runs_of_other_data_are_refused_and_data_may_move(stand_in, capsys):
    assert run_seeds(1) == 0
    task = train_seeds.LanguageModeling(parse_recipe(["recipe.yaml"]))
    task.read_data(ONLSTMConfig())
    results = json.loads(Path("runs/seed_1/results.json").read_text()) | {"fingerprints": task.fingerprints}
    Path("runs/seed_1/results.json").write_text(json.dumps(results))
    for name in ("train.txt", "gold.mrg"):
        Path(f"moved_{name}").write_text(Path(name).read_text())
    moved = ["--train_files", "moved_train.txt", "--gold_trees", "moved_gold.mrg"]
    assert run_seeds(1, *moved) == 0
    for name, part in {"train.txt": "training text", "gold.mrg": "gold trees"}.items():
        text = Path(name).read_text()
        Path(name).write_text(text.replace("dog", "cat", 1))
        assert run_seeds(1, 2) == 1
        assert f"the {part} changed since runs/seed_1 was trained" in capsys.readouterr().err
        Path(name).write_text(text)
    assert len(Path("started.txt").read_text().splitlines()) == 1


def test_baselines_and_changed_fields_follow_the_table(stand_in, capsys):
    assert run_seeds(1) == 0
    results = json.loads(Path("runs/seed_1/results.json").read_text())
    results["baselines"] = {"left branching": 0.09, "balanced": 0.213}
    results["changes"] = [{"step": 61, "field": "num_epochs", "before": 3, "after": 6}]
    Path("runs/seed_1/results.json").write_text(json.dumps(results))
    assert run_seeds(1, 2) == 0
    *_, baselines, change = capsys.readouterr().out.splitlines()
    assert baselines == "F1 of left branching 9.00, balanced 21.30"
    assert change == "seed 1: num_epochs was 3 until update 61, then 6"


def test_the_last_line_of_each_run_is_shown_while_it_runs(stand_in, capsys):
    assert run_seeds(4) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "seed 4: update 2 of 4" in lines and "seed 4 is finished" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1", "--seed", "3"], "give the seeds with --seeds"),
        (["1", "--learning_rat", "3"], "unknown arguments: --learning_rat 3"),
        (["1", "--train_files", "nowhere.txt"], "no file nowhere.txt"),
        (["1", "--batch_size", "0"], "batch_size must be at least 1"),
        (["1", "--model.hidden_sise", "3"], "ONLSTMConfig has no fields hidden_sise"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_started(stand_in, refusal, arguments, message):
    assert message in refusal(train_seeds, "recipe.yaml", "--seeds", *arguments)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_an_interrupted_run_ends_like_an_uninterrupted_one(monkeypatch):
    run_in_process(train_lm.main, "whole/seed_1", "--seed", 1)
    with monkeypatch.context() as patch:
        patch.setattr(train_seeds.time, "sleep", interrupt_after_a_checkpoint)
        assert run_seeds(1, "--results", "kept") == 130
    assert not Path("runs/seed_1/results.json").exists()
    assert run_seeds(1, "--results", "kept") == 0
    assert "resumed after" in Path("runs/seed_1/output.txt").read_text()
    assert_same_run("runs/seed_1", "whole/seed_1")
    trees = [Path(name).read_bytes() for name in ("runs/seed_1/trees.jsonl.xz", "kept/seed_1.trees.jsonl.xz")]
    assert trees == [Path("whole/seed_1/trees.jsonl.xz").read_bytes()] * 2


def interrupt_after_a_checkpoint(seconds):
    SLEEP(seconds)
    if Path("runs/seed_1/last").exists():
        raise KeyboardInterrupt
