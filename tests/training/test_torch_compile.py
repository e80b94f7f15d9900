"""Training with torch.compile matches training without it."""

import os
import subprocess
import sys

import pytest
import torch

from tests.helpers.training_runs import log_of, run_in_process, weights_of, write_recipe, write_texts
from training import train_lm

RECIPE = {
    "model": {"embedding_size": 16, "hidden_size": 24, "chunk_size": 4, "num_hidden_layers": 2},
    **{"optimizer": "adamw", "learning_rate": 1e-3, "max_grad_norm": 0.5, "seed": 1},
    **{"num_epochs": 100, "max_steps": 200, "eval_every_steps": 100},
}
# Runs in a process of its own, as other tests leave compiled functions and their counters.
COMPILE = """
import torch
from tests.helpers.training_runs import run_in_process
from training import train_lm

run_in_process(train_lm.main, "compiled", "--torch_compile", True)
counters = torch._dynamo.utils.counters
print(counters["stats"]["unique_graphs"], len(counters["graph_break"]))
"""


@pytest.mark.slow
def test_two_hundred_compiled_updates_match_plain_ones(tmp_path, monkeypatch, project_root):
    """Covers dropout, drop-connect, random lengths and carried state."""
    monkeypatch.chdir(tmp_path)
    write_texts(train=300, valid=20)
    write_recipe(**RECIPE)
    run_in_process(train_lm.main, "first", "--max_steps", 1)
    run_in_process(train_lm.main, "plain")
    environment = {**os.environ, "PYTHONPATH": str(project_root)}
    command = [sys.executable, "-c", COMPILE]
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    losses = [[entry["loss"] for entry in log_of(name, "loss")] for name in ("plain", "compiled")]
    assert len(losses[0]) == 200
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-3, atol=0)
    torch.testing.assert_close(weights_of("compiled"), weights_of("plain"), rtol=0.02, atol=0.02)
    # The difference is small relative to the change of each weight since the first update.
    first, plain, compiled_weights = (weights_of(name) for name in ("first", "plain", "compiled"))
    for name, weight in plain.items():
        assert (compiled_weights[name] - weight).norm() <= 0.02 * (weight - first[name]).norm(), name
    num_graphs, num_breaks = map(int, printed.splitlines()[-1].split())
    assert 1 <= num_graphs <= 3 and num_breaks == 0  # not one graph per length
