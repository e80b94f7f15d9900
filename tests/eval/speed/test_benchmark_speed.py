"""The speed benchmark runs, and computes its ratios from the times that it measured; no test says how fast it is."""

import functools
import json
import statistics

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from eval import benchmark_speed
from eval.speed import contestants as speed_contestants
from eval.speed import measurement as speed_measurement
from eval.speed.cases import random_sentences
from eval.speed.contestants import StackSize, recurrence_contestants
from eval.speed.measurement import Spread, leave_out_unavailable, ratios, take_turns
from eval.speed.memory import peak_memory
from eval.speed.prpn_word_by_word import logits_word_by_word
from eval.speed.rows import Row
from eval.speed.scales import SCALES
from eval.speed.training import largest_relative_difference
from tests.helpers.forked_processes import forked_context
from tests.helpers.requirements import library
from tests.helpers.tiny_models import PRPN

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def restored_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def median_ratio(numerators, denominators):
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def test_a_quick_run_prints_ratios_of_the_times_in_its_file(capsys, tmp_path):
    output = tmp_path / "speed.json"
    arguments = ["--quick", "--device", "cpu", "--rounds", "3", "--cases", "recurrence", "parsing"]
    assert benchmark_speed.main([*arguments, "--output", str(output), "--markdown"]) == 0
    results = json.loads(output.read_text())
    assert results["command"].startswith("python eval/benchmark_speed.py --quick")
    assert {"cpu", "cores", "threads", "torch"} <= set(results["machine"])
    assert results["rounds"] == 3

    for outcome in [*results["recurrence"], *results["parsing"]]:
        measured = set(outcome["seconds"]) | set(outcome["left_out"])
        assert {f"{name} {dtype}" for name in ("auto", "fused") for dtype in ("float32", "bf16")} <= measured
        assert all(len(times) == 3 and min(times) > 0 for times in outcome["seconds"].values())
    large = results["recurrence"][0]
    always = {f"{name} {dtype}" for name in ("reference", "products") for dtype in ("float32", "bf16")}
    assert always | {"nn.LSTM float32"} <= set(large["seconds"])
    assert "nn.LSTM bf16" in {*large["seconds"], *large["left_out"]}  # oneDNN does not have it for every CPU
    expected = {
        "float32, speed of the reference loop": ("reference float32", "auto float32"),
        "float32, time of nn.LSTM": ("auto float32", "nn.LSTM float32"),
        "float32, time of its matrix products": ("auto float32", "products float32"),
        "bf16, speed of the float32 reference loop": ("reference float32", "auto bf16"),
        "bf16, time of its matrix products": ("auto bf16", "products bf16"),
    }
    rows = {row["figure"]: row for row in results["rows"] if row["case"] == large["title"]}
    assert set(rows) == set(expected)
    for figure, (numerator, denominator) in expected.items():
        median, low, high = rows[figure]["measured"]
        assert median == pytest.approx(median_ratio(large["seconds"][numerator], large["seconds"][denominator]))
        assert low <= median <= high
    assert rows["float32, speed of the reference loop"]["target"] == "at least 2.5"
    assert rows["float32, speed of the reference loop"]["met"] == (
        rows["float32, speed of the reference loop"]["measured"][1] >= 2.5  # the lower quartile
    )

    printed = capsys.readouterr().out
    assert results["machine"]["cpu"] in printed
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(results["rows"])
    assert {line.count("|") for line in table} == {8}
    assert {(row["allocator"], row["optimizer"]) for row in results["rows"]} == {("default", "none")}


@pytest.mark.slow
def test_every_case_runs(capsys, tmp_path, monkeypatch):
    library("matplotlib")
    # What is measured does not matter here; a spawned process of each contestant imports all libraries again.
    monkeypatch.setattr(speed_measurement, "get_context", lambda method: forked_context())
    text, output, plot = tmp_path / "text.txt", tmp_path / "speed.json", tmp_path / "speed.png"
    text.write_text("the cat sat on the mat\nit saw dogs\n" * 20)
    arguments = ["--quick", "--device", "cpu", "--output", str(output), "--plot", str(plot), "--text", str(text)]
    sizes = "--batch_size=2 --bptt_length=4 --model.embedding_size=8 --model.hidden_size=8"
    curves = ["--loss-curves", str(text), "--loss-steps", "3", "--loss-overrides", sizes]
    assert benchmark_speed.main([*arguments, *curves]) == 0
    results = json.loads(output.read_text())
    assert {*benchmark_speed.CASES, "loss_curves"} - {"scoring"} <= set(results)  # which needs a treebank
    assert set(results["growth"]) == {"batch size", "length", "width"}
    assert set(results["step"][0]["seconds"]) >= {
        f"{name} {d}" for name in ("auto", "reference") for d in ("float32", "bf16")
    }
    assert len(results["loss_curves"]["reference float32"]) == 3
    (parsing,) = results["parsing"]
    assert parsing["num_tokens"] == 20 * 9
    training, parsing_with_prpn = results["prpn"]
    assert {"word by word float32", "reference float32", "auto float32", "auto bf16"} <= set(training["seconds"])
    assert parsing_with_prpn["num_tokens"] == 20 * 9
    assert plot.read_bytes().startswith(b"\x89PNG")
    settings = {row["case"].partition(",")[0]: (row["allocator"], row["optimizer"]) for row in results["rows"]}
    assert settings["whole training step of onlstm_ptb"] == ("default", "fused")
    assert settings["peak memory of a training step above weights and gradients"] == ("returned", "none")
    by_figure = {row["figure"]: row for row in results["rows"] if row["case"].startswith("training step of a PRPN")}
    compared = by_figure["float32, speed of word by word"]
    assert (compared["allocator"], compared["optimizer"]) == ("kept / default", "fused")
    assert by_figure["float32, seconds"]["rounds"] == training["seconds"]["auto float32"]
    targets = [row for row in results["rows"] if row["target"]]
    assert all(row["met"] is not None for row in targets)
    assert len(targets) == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "parsing", "--text", "missing.txt"], "there is no file missing.txt"),
        (["--cases", "--output", "no/such/folder/speed.json"], "cannot write"),
    ],
)
def test_bad_files_are_refused_before_anything_is_measured(capsys, arguments, message):
    assert benchmark_speed.main(["--quick", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_scoring_is_timed_where_there_is_a_treebank(tmp_path):
    treebank, output = tmp_path / "trees.mrg", tmp_path / "speed.json"
    treebank.write_text("( (S (NP (DT the) (NN cat)) (VP (VBD sat))) )\n" * 3)
    arguments = ["--quick", "--device", "cpu", "--cases", "scoring", "--treebank", str(treebank)]
    assert benchmark_speed.main([*arguments, "--output", str(output)]) == 0
    (row,) = json.loads(output.read_text())["rows"]
    assert row["case"] == "scoring 3 sentences with all baselines" and row["measured"][0] > 0


def test_contestants_take_turns_and_another_one_begins_each_round(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(speed_measurement.time, "perf_counter", lambda: now[0])

    def contestant(name, seconds):
        def run():
            calls.append(name)
            now[0] += seconds

        return run

    contestants = {name: contestant(name, seconds) for name, seconds in {"a": 1.0, "b": 2.0, "c": 4.0}.items()}
    assert take_turns(contestants, 3, CPU) == {"a": [1.0] * 3, "b": [2.0] * 3, "c": [4.0] * 3}
    assert "".join(calls) == "abcbcacab"


def test_a_contestant_that_is_done_too_soon_runs_again_in_its_turn(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(speed_measurement.time, "perf_counter", lambda: now[0])

    def run():
        calls.append(now[0])
        now[0] += 0.5 if len(calls) % 3 else 2.0

    assert take_turns({"a": run}, 2, CPU, shortest_turn=2.5) == {"a": [1.0, 1.0]}
    assert len(calls) == 6


@pytest.mark.slow
def test_a_contestant_in_its_own_process_runs_there_and_says_when_it_fails(capfd):
    with speed_measurement.in_own_process(functools.partial, print, "its turn") as run:
        run()
        run()
    assert capfd.readouterr().out == "its turn\n" * 2
    failing = speed_measurement.in_own_process(functools.partial, int, "no number")
    with failing as run, pytest.raises(RuntimeError, match="a contestant's process failed"):
        run()
    with pytest.raises(RuntimeError, match="a contestant's process failed"):
        speed_measurement.in_own_process(functools.partial).__enter__()


def test_word_by_word_a_prpn_has_the_logits_of_the_whole_sequence():
    torch.manual_seed(0)
    model = PRPN.make().eval()
    ids = torch.randint(model.config.vocab_size, (3, 7))
    torch.testing.assert_close(logits_word_by_word(model, ids), model(ids).logits, rtol=0, atol=1e-5)


def test_what_cannot_run_is_left_out_with_its_reason():
    def refuse():
        raise ValueError("needs a compiler")

    def run():
        pass

    assert leave_out_unavailable({"a": refuse, "b": run}) == ({"b": run}, {"a": "needs a compiler"})


def test_an_lstm_that_the_cpu_has_no_kernel_for_is_left_out_and_other_errors_are_not(monkeypatch):
    contestants = recurrence_contestants(StackSize(2, 3, (4, 4), chunk_size=2), CPU)

    def fail(message):
        def forward(self, inputs):
            raise RuntimeError(message)

        monkeypatch.setattr(torch.nn.LSTM, "forward", forward)
        return leave_out_unavailable(contestants)

    available, reasons = fail("could not create a primitive descriptor for the LSTM forward propagation primitive")
    assert {"nn.LSTM float32", "nn.LSTM bf16"} <= set(reasons)
    assert {"auto float32", "auto bf16"} <= set(available)
    with pytest.raises(RuntimeError, match="shapes"):
        fail("shapes do not fit")


@pytest.mark.parametrize(
    ("target", "met"),
    [
        ({"at_least": 2.5}, True),
        ({"at_least": 2.6}, False),
        ({"at_most": 3.5}, True),
        ({"at_most": 3.4}, False),
        ({}, None),
    ],
)
def test_a_target_is_met_where_the_worse_quartile_meets_it(target, met):
    row = Row("step", "speed", [2.0, 4.0, 3.0], **target)
    assert row.measured == Spread(3.0, 2.5, 3.5)
    assert row.met is met
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_a_spread_is_that_of_the_ratios_within_rounds():
    assert Spread.of(ratios([2.0, 8.0, 3.0], [1.0, 2.0, 1.0])) == Spread(3.0, 2.5, 3.5)
    assert Spread.of([5.0]) == (5.0, 5.0, 5.0)


def test_differences_of_curves_are_relative_and_nan_does_not_hide():
    assert largest_relative_difference([1.0, 2.2, 4.0], [1.0, 2.0, 4.0]) == pytest.approx(0.1)
    assert largest_relative_difference([1.0, float("nan")], [1.0, 1.0]) != 0
    assert not largest_relative_difference([float("nan"), 1.0], [1.0, 1.0]) <= 1


def test_the_products_are_those_of_the_recurrence():
    """By operations: two for each weight and token, forward, backward to the input, and to the weight."""
    size = StackSize(batch_size=3, length=5, layer_sizes=(8, 12, 8), chunk_size=4)
    contestants = recurrence_contestants(size, CPU)
    gates = {12: 4 * 12 + 2 * 3, 8: 4 * 8 + 2 * 2}
    expected = 3 * 2 * 15 * (gates[12] * (8 + 12) + gates[8] * (12 + 8))
    for precision in ("float32", "bf16"):
        with FlopCounterMode(display=False) as counter:
            contestants[f"products {precision}"]()
        assert counter.get_total_flops() == expected


def test_every_implementation_and_precision_takes_part():
    contestants = recurrence_contestants(StackSize(2, 3, (4, 8, 4), 4), CPU)
    paths = [*speed_contestants.PATHS, speed_contestants.LSTM, speed_contestants.PRODUCTS]
    assert set(contestants) == {f"{path} {precision}" for path in paths for precision in ("float32", "bf16")}


@pytest.mark.slow
def test_peak_memory_counts_what_the_graph_over_time_keeps():
    """Every step of the plain loop keeps more than ten tensors of the size of the state for the backward pass."""
    config = {"vocab_size": 50, "embedding_size": 400, "hidden_size": 400, "num_hidden_layers": 2}
    batch_size, length = 20, 40
    peaks = peak_memory(config, batch_size, length, {"plain": ("reference", False), "no": ("triton?", False)}, "cpu")
    assert set(peaks) == {"plain"}
    states = 2 * 4 * batch_size * length * 400
    assert 10 * states < peaks["plain"] < 60 * states


def test_sentences_are_numbered_words_inside_the_vocabulary(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat\n\nthe dog\n")
    options = benchmark_speed.build_parser().parse_args(["--text", str(path)])
    assert benchmark_speed.read_sentences(options, SCALES["quick"]) == [[0, 1], [0, 2]]
    for scale in SCALES.values():
        sentences = random_sentences(scale, 50)
        assert len(sentences) == 50
        assert max(map(max, sentences)) < scale.model.get("vocab_size", 10000)
