"""Tiny training runs: texts, commands in this process, and comparisons of outputs."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from safetensors.torch import load_file
from transformers import TrainingArguments

from tests.helpers.tiny_models import DROPOUTS

WORDS = ["the", "a", "every", "some", "cat", "dog", "bird", "sees", "likes", "runs", "sleeps", "and", "big", "small"]
GOLD_TREES = (
    "( (S (NP (DT the) (JJ big) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog)))) )\n"
    "( (S (NP (NP (DT the) (NN dog)) (CC and) (NP (DT the) (NN bird))) (VP (VBZ sleeps))) )\n"
)
NO_DROPOUT = [text for name in DROPOUTS for text in (f"--model.{name}", "0")]
RECIPE = {
    "model": {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2, "chunk_size": 4},
    "train_files": ["train.txt"],
    "validation_files": ["valid.txt"],
    **{"bptt_length": 12, "batch_size": 4, "eval_batch_size": 3, "num_epochs": 2},
    **{"log_every_steps": 1, "num_threads": 1},
}
SPEEDS = {"tokens_per_s", "pairs_per_s", "words_per_s"}


def write_texts(folder: str | Path = ".", words: list[str] = WORDS, **counts: int) -> None:
    """Writes `NAME.txt` with `counts[NAME]` random sentences of 2 to 8 words for each name."""
    generator = random.Random(0)
    for name, count in counts.items():
        lines = (" ".join(generator.choices(words, k=generator.randint(2, 8))) for _ in range(count))
        Path(folder, f"{name}.txt").write_text("\n".join(lines) + "\n")


def write_recipe(path: str | Path = "recipe.yaml", **changes: object) -> None:
    """Writes the recipe of a tiny language model with changed fields; None leaves a field out."""
    fields = {name: value for name, value in (RECIPE | changes).items() if value is not None}
    Path(path).write_text(json.dumps(fields))


def command(output_dir: str | Path, *overrides: object, recipe: str = "recipe.yaml") -> list[str]:
    """Returns the arguments of a training script."""
    return [recipe, "--output_dir", str(output_dir), *map(str, overrides)]


def run_in_process(
    main: Callable[[list[str]], dict], output_dir: str | Path, *overrides: object, recipe: str = "recipe.yaml"
) -> dict:
    """Runs a training script in this process with a fresh Accelerate state. Returns the content of results.json."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    return main(command(output_dir, *overrides, recipe=recipe))


def trainer_arguments(output_dir: str | Path, **options: object) -> TrainingArguments:
    """Returns arguments of `Trainer` for a CPU, without reports and progress bars."""
    return TrainingArguments(str(output_dir), use_cpu=True, disable_tqdm=True, **{"report_to": [], **options})


def log_of(output_dir: str | Path, *names: str) -> list[dict]:
    """Returns the entries of log.jsonl that have all these names, without speeds."""
    entries = [json.loads(line) for line in Path(output_dir, "log.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in entry.items() if key not in SPEEDS}
        for entry in entries
        if set(names) <= set(entry)
    ]


def weights_of(output_dir: str | Path, name: str = "last") -> dict[str, torch.Tensor]:
    return load_file(Path(output_dir, name, "model.safetensors"))


def assert_same_weights(output_dir: str | Path, other: str | Path) -> None:
    """Compares the weights in best/, last/ and the training state bit by bit."""
    for name in ("best", "last", "last/training_state"):
        weights, expected = weights_of(output_dir, name), weights_of(other, name)
        assert all(torch.equal(weights[key], expected[key]) for key in expected.keys() | weights.keys())


def assert_same_run(output_dir: str | Path, other: str | Path) -> None:
    """Compares the weights in best/, last/ and the training state bit by bit, and the logs."""
    assert_same_weights(output_dir, other)
    assert log_of(output_dir) == log_of(other)


class Stopped(Exception):
    """Raised to stop a run."""


def check_resumption(
    monkeypatch: pytest.MonkeyPatch, train: Callable[..., dict], *options: object, stops: Sequence[int] = (5,)
) -> None:
    """Checks that a run that is stopped during updates and resumed equals an uninterrupted run.

    Args:
        train: function that runs a script with an output folder and options.
        stops: update in which each part of the run stops, after the gradients and before the change of weights.
    """
    train("whole", *options)
    clip = Accelerator.clip_grad_norm_
    for stop in stops:
        calls = []

        def clip_or_stop(self, *arguments, calls=calls, stop=stop):
            calls.append(arguments)
            if len(calls) == stop:
                raise Stopped
            return clip(self, *arguments)

        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(Accelerator, "clip_grad_norm_", clip_or_stop)
            train("parts", *options, "--resume")
        with open("parts/log.jsonl", "a") as log:
            log.write('{"step": 3, "lo')  # as in a killed process
    train("parts", *options, "--resume")
    assert_same_run("parts", "whole")
