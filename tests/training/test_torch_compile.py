"""Training by compiled code makes the updates of training without, and leaves the same files."""

from pathlib import Path

import pytest
import torch

from tests.helpers.training_runs import command, log_of, run_in_process, weights_of, write_texts
from training import train_lm

RECIPE = """
model: {embedding_size: 16, hidden_size: 24, chunk_size: 4, num_hidden_layers: 2}
bptt_length: 12
batch_size: 4
optimizer: adamw
learning_rate: 1.0e-3
max_grad_norm: 0.5
num_epochs: 100
max_steps: 200
log_every_steps: 1
eval_every_steps: 100
seed: 1
"""


@pytest.mark.slow
def test_two_hundred_compiled_updates_are_those_of_plain_ones(tmp_path, monkeypatch):
    """With dropout, drop-connect, lengths drawn at random and a state that is carried along."""
    monkeypatch.chdir(tmp_path)
    write_texts(train=300, valid=20)
    files = "train_files: [train.txt]\nvalidation_files: [valid.txt]\n"
    Path("recipe.yaml").write_text(RECIPE + files)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run_in_process(train_lm.main, command("first", "--max_steps", 1))
    for name in ("plain", "compiled"):
        run_in_process(train_lm.main, command(name, "--torch_compile", name == "compiled"))
    losses = [[entry["loss"] for entry in log_of(name, "loss")] for name in ("plain", "compiled")]
    assert len(losses[0]) == 200
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-3, atol=0)
    torch.testing.assert_close(weights_of("compiled"), weights_of("plain"), rtol=0.02, atol=0.02)
    # The two differ by a small part of the way that each weight has gone.
    first, plain, compiled_weights = (weights_of(name) for name in ("first", "plain", "compiled"))
    for name, weight in plain.items():
        assert (compiled_weights[name] - weight).norm() <= 0.02 * (weight - first[name]).norm(), name
    counters = torch._dynamo.utils.counters
    assert 1 <= counters["stats"]["unique_graphs"] <= 3  # not one for each length
    assert not counters["graph_break"]
