"""The speed benchmark runs and computes ratios of measured times; no test depends on the speed."""

import json
import statistics
from itertools import chain, cycle, repeat

import pytest
import torch

from eval import benchmark_speed
from eval.speed import cases
from eval.speed import measurement as speed_measurement
from eval.speed.measurement import ratios, spread, take_turns

CPU = torch.device("cpu")


def run_quickly(tmp_path, *arguments):
    output = tmp_path / "speed.json"
    assert benchmark_speed.main(["--quick", "--device", "cpu", "--output", str(output), *map(str, arguments)]) == 0
    return json.loads(output.read_text())


def test_printed_ratios_match_the_stored_times(capsys, tmp_path):
    results = run_quickly(tmp_path, "--rounds", 3, "--cases", "recurrence", "parsing", "--markdown")
    assert results["command"].startswith("python eval/benchmark_speed.py --quick")
    assert {"cpu", "cores", "threads", "torch"} <= set(results["machine"])
    (stack,), (parsing,) = results["recurrence"], results["parsing"]
    for outcome in (stack, parsing):
        assert all(len(times) == 3 and min(times) > 0 for times in outcome["seconds"].values())
    measured = {*stack["seconds"], *stack["left_out"]}
    assert measured == {f"{path} {dtype}" for path in (*cases.PATHS, "nn.LSTM") for dtype in ("float32", "bf16")}
    assert {"reference float32", "auto float32", "nn.LSTM float32"} <= set(stack["seconds"])
    assert {"auto float32", "auto bf16", "reference float32, sentence by sentence"} == set(parsing["seconds"])
    expected = {
        "float32, speed of the reference loop": ("reference float32", "auto float32"),
        "float32, time of nn.LSTM": ("auto float32", "nn.LSTM float32"),
        "bf16, speed of the float32 reference loop": ("reference float32", "auto bf16"),
    }
    rows = {row["figure"]: row for row in results["rows"] if row["case"] == stack["title"]}
    assert set(rows) == set(expected)
    for figure, (numerator, denominator) in expected.items():
        pairs = zip(stack["seconds"][numerator], stack["seconds"][denominator], strict=True)
        ratio = statistics.median(first / second for first, second in pairs)
        assert statistics.median(rows[figure]["rounds"]) == pytest.approx(ratio)
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[-1] for line in table[2:]] == [f"{row['spread']} |" for row in results["rows"]]


def test_neighbours_run_only_during_the_measurement(tmp_path, monkeypatch):
    running = []

    def recorded(command, **options):
        running.append(Popen(command, **options))
        return running[-1]

    def record_turns(*arguments):
        seen.append(sum(process.poll() is None for process in running))
        return take_turns(*arguments)

    seen, Popen = [], cases.subprocess.Popen
    monkeypatch.setattr(cases.subprocess, "Popen", recorded)
    monkeypatch.setattr(cases, "take_turns", record_turns)
    results = run_quickly(tmp_path, "--cases", "neighbours")
    assert seen == [0, 1]
    assert all(process.poll() is not None for process in running)
    for outcome in results["neighbours"]:
        rows = [row for row in results["rows"] if row["case"] == outcome["title"]]
        assert len(rows) == 2
        for row in rows:
            name = row["figure"].removesuffix(", time of nn.LSTM")
            pairs = outcome["seconds"][name], outcome["seconds"][f"nn.LSTM {name.partition(' ')[2]}"]
            assert row["rounds"] == ratios(*pairs)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["onlstm_ptb_small", "prpn_ptb_small", "lstm_ptb_small"])
def test_steps_of_released_recipes_are_measured(tmp_path, recipe):
    results = run_quickly(tmp_path, "--cases", "step", "--recipe", recipe)
    (step,) = results["step"]
    assert {"auto float32", "reference float32", "auto bf16", "reference bf16"} <= set(step["seconds"])
    assert {row["figure"] for row in results["rows"]} >= {"float32, tokens a second", "bf16, tokens a second"}


def test_losses_of_all_paths_are_compared_with_the_reference(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\nit saw dogs\n" * 20)
    results = run_quickly(tmp_path, "--cases", "--loss-curves", text)
    curves = results["loss_curves"]
    assert all(len(curve) == 3 and len(set(curve)) == 3 for curve in curves.values())
    assert len(results["rows"]) == len(curves) - 1
    auto = next(row for row in results["rows"] if row["figure"].startswith("auto float32"))
    pairs = zip(curves["auto float32"], curves["reference float32"], strict=True)
    assert auto["rounds"] == [pytest.approx(max(abs(loss - target) / target for loss, target in pairs), abs=1e-15)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "parsing", "--treebank", "missing.mrg"], "missing.mrg"),
        (["--cases", "--output", "no/such/folder/speed.json"], "cannot write"),
        (["--cases", "step", "--recipe", "missing"], "missing.yaml"),
    ],
)
def test_bad_files_are_refused(refusal, arguments, message):
    assert message in refusal(benchmark_speed, "--quick", *arguments)


def test_token_ids_of_sentences_are_in_the_vocabulary(tmp_path):
    path = tmp_path / "trees.mrg"
    path.write_text("( (S (DT the) (NN cat)) )\n( (S (DT the) (NN dog)) )\n")
    options = benchmark_speed.build_parser().parse_args(["--quick", "--treebank", str(path)])
    assert benchmark_speed.read_sentences(options) == [[0, 1], [0, 2]]
    options = benchmark_speed.build_parser().parse_args(["--quick"])
    assert 0 <= max(map(max, benchmark_speed.read_sentences(options))) < cases.TINY_MODEL["vocab_size"]


@pytest.fixture
def contestant(monkeypatch):
    """Returns contestants that take some seconds of a simulated clock, and note their calls."""
    now = [0.0]
    monkeypatch.setattr(speed_measurement.time, "perf_counter", lambda: now[0])

    def contestant(name, seconds, calls):
        def run():
            calls.append(name)
            now[0] += next(seconds)

        return run

    return contestant


def test_contestants_take_turns_and_the_first_one_rotates(contestant):
    calls, seconds = [], {"a": 1.0, "b": 2.0, "c": 4.0}
    contestants = {name: contestant(name, repeat(time), calls) for name, time in seconds.items()}
    assert take_turns(contestants, 3, CPU) == ({"a": [1.0] * 3, "b": [2.0] * 3, "c": [4.0] * 3}, {})
    assert "".join(calls) == "abc" + "abcbcacab"  # warm-up and rounds


def test_a_fast_contestant_is_repeated_in_its_turn(contestant):
    calls = []
    run = contestant("a", chain([9.0], cycle([0.5, 0.5, 2.0])), calls)
    assert take_turns({"a": run}, 2, CPU, shortest_turn=2.5) == ({"a": [1.0, 1.0]}, {})
    assert len(calls) == 1 + 6


def test_unavailable_contestants_are_left_out_with_the_reason(contestant):
    def refuse():
        raise ValueError("needs a compiler")

    contestants = {"a": refuse, "b": contestant("b", repeat(1.0), [])}
    assert take_turns(contestants, 2, CPU) == ({"b": [1.0, 1.0]}, {"a": "needs a compiler"})


def test_spread_is_the_median_with_the_quartiles_of_ratios_within_rounds():
    assert spread(ratios([2.0, 8.0, 3.0], [1.0, 2.0, 1.0])) == "3 (2.5 to 3.5)"
    assert spread([1234.5]) == "1,234" and spread([float("nan")]) == "nan"
