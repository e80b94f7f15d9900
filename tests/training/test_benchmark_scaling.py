"""What scaling costs on paper, and the tables of it."""

import pytest

from training import benchmark_scaling
from training.benchmark_scaling import Links, Turn, efficiency, main

LINKS = Links(in_host=300e9, between_hosts=12.5e9, latency=50e-6, gpus_per_host=8)
RECIPE = ["--model.embedding_size", "8", "--model.hidden_size", "12", "--model.chunk_size", "4"]


def test_a_ring_sends_each_byte_nearly_twice_over_the_slowest_link():
    assert LINKS.seconds(8, 300_000_000, 10) == pytest.approx(2 * 7 / 8 * 1e-3 + 10 * 50e-6)
    assert LINKS.seconds(64, 100_000_000, 0) == pytest.approx(2 * 63 / 64 * 8e-3)


def test_what_is_sent_once_for_several_batches_costs_less():
    assert efficiency(0.1, 0.1, 1) == 0.5
    assert efficiency(0.1, 0.1, 4) == 0.8


def test_the_tables_have_medians_of_ratios_within_a_turn_and_the_numbers_of_gpus(tmp_path, monkeypatch, capsys):
    turns = [
        Turn(seconds, seconds, {"no": 2 * seconds, "bf16": 1.25 * seconds}, {"no": 2_000_000, "bf16": 1_000_000})
        for seconds in (1.0, 2.0, 4.0)
    ]
    monkeypatch.setattr(benchmark_scaling, "measured_turns", lambda arguments, num_turns: turns[:num_turns])
    (tmp_path / "recipe.yaml").write_text("batch_size: 4\nbptt_length: 50\n")
    main([str(tmp_path / "recipe.yaml"), *RECIPE, "--turns", "3", "--gpus", "16", "--gpu-tokens-per-second", "1000"])
    shown = capsys.readouterr().out
    assert "| 1 process | 100 (75 to 150) | 1 (1 to 1) |  |" in shown
    assert "| 2 processes, gradients in float32 | 100 (75 to 150) | 1 (1 to 1) | 2 |" in shown
    assert "| 2 processes, gradients in bf16 | 160 (120 to 240) | 1.6 (1.6 to 1.6) | 1 |" in shown
    assert "| 16 | float32 |" in shown and "| 16 | bf16 |" in shown
