"""A run of a recipe as the speed benchmarks make one; how fast it is, no test says."""

from itertools import pairwise

import pytest

from eval.speed.training import loss_curve, start_training, step_contestants, write_random_text

SIZES = ["--batch_size=2", "--bptt_length=4", "--model.embedding_size=8", "--model.hidden_size=8"]


@pytest.mark.parametrize("recipe", ["onlstm_ptb_small", "prpn_ptb_small", "lstm_ptb_small"])
def test_a_run_of_a_released_recipe_makes_updates(recipe, tmp_path):
    text = tmp_path / "text.txt"
    write_random_text(text, vocab_size=20, num_tokens=200)
    run = start_training(recipe, text, "float32", tmp_path / "run", SIZES)
    contestants = step_contestants(run, ["reference", "auto"], "float32")
    assert set(contestants) == {"reference float32", "auto float32"}
    for update in contestants.values():
        update()
    assert run.progress.step == 2
    losses = loss_curve(run, "auto", num_steps=5)
    assert len(losses) == 5
    assert all(first != second for first, second in pairwise(losses))
