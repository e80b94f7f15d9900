"""Training with torch.compile matches training without it."""

import pytest
import torch

from tests.helpers.training_runs import log_of, run_in_process, weights_of, write_recipe, write_texts
from training import train_lm

RECIPE = {
    "model": {"embedding_size": 16, "hidden_size": 24, "chunk_size": 4, "num_hidden_layers": 2},
    **{"optimizer": "adamw", "learning_rate": 1e-3, "max_grad_norm": 0.5, "seed": 1},
    **{"num_epochs": 100, "max_steps": 200, "eval_every_steps": 100},
}


@pytest.mark.slow
def test_two_hundred_compiled_updates_match_plain_ones(tmp_path, monkeypatch):
    """Covers dropout, drop-connect, random lengths and carried state."""
    monkeypatch.chdir(tmp_path)
    write_texts(train=300, valid=20)
    write_recipe(**RECIPE)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run_in_process(train_lm.main, "first", "--max_steps", 1)
    for name in ("plain", "compiled"):
        run_in_process(train_lm.main, name, "--torch_compile", name == "compiled")
    losses = [[entry["loss"] for entry in log_of(name, "loss")] for name in ("plain", "compiled")]
    assert len(losses[0]) == 200
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-3, atol=0)
    torch.testing.assert_close(weights_of("compiled"), weights_of("plain"), rtol=0.02, atol=0.02)
    # The difference is small relative to the change of each weight since the first update.
    first, plain, compiled_weights = (weights_of(name) for name in ("first", "plain", "compiled"))
    for name, weight in plain.items():
        assert (compiled_weights[name] - weight).norm() <= 0.02 * (weight - first[name]).norm(), name
    counters = torch._dynamo.utils.counters
    assert 1 <= counters["stats"]["unique_graphs"] <= 3  # not one per length
    assert not counters["graph_break"]
