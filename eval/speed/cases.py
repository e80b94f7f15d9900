"""The cases of the speed benchmark: what takes turns in each, and which figures of it are reported."""

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from eval.speed.contestants import LSTM, PATHS, PRECISIONS, PRODUCTS, StackSize, recurrence_contestants
from eval.speed.measurement import Spread, leave_out_unavailable, ratios, take_turns
from eval.speed.memory import peak_memory
from eval.speed.rows import Outcome, Row
from eval.speed.scales import Scale
from eval.speed.training import (
    largest_relative_difference,
    loss_curve,
    start_training,
    step_contestants,
    write_random_text,
)
from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM
from onlstm_hf.scoring.parsing_scores import score_baselines
from onlstm_hf.trees.treebank import GoldTree

FAST_PATHS = tuple(name for name in PATHS if name != "reference")
REFERENCE = "reference float32"
PENN_TREEBANK_TOKENS = 929_589
REFERENCE_SENTENCES_PER_ROUND = 10


def measure_recurrence(scale: Scale, rounds: int, device: torch.device) -> list[Outcome]:
    """Forward and backward pass of the two recurrent stacks."""
    return [
        _recurrence(scale.large, scale.shortest_turn, rounds, device, (2.5, 1.1, 5.0)),
        _recurrence(scale.small, scale.shortest_turn, rounds, device, (3.0, 1.2, None)),
    ]


def _recurrence(
    size: StackSize,
    shortest_turn: float,
    rounds: int,
    device: torch.device,
    bounds: tuple[float, float, float | None],
) -> Outcome:
    if device.type == "cuda":
        bounds = (20.0, 1.5, 20.0)
    faster, of_lstm, faster_in_bf16 = bounds
    contestants, left_out = leave_out_unavailable(recurrence_contestants(size, device))
    seconds = take_turns(contestants, rounds, device, shortest_turn)
    case = f"recurrent stack, training, {size}"
    in_float32, in_bf16 = seconds["auto float32"], seconds["auto bf16"]
    lstm, speed_in_bf16 = seconds[f"{LSTM} float32"], ratios(seconds[REFERENCE], in_bf16)
    rows = [
        Row(case, "float32, speed of the reference loop", ratios(seconds[REFERENCE], in_float32), at_least=faster),
        Row(case, f"float32, time of {LSTM}", ratios(in_float32, lstm), at_most=of_lstm),
        Row(case, "float32, time of its matrix products", ratios(in_float32, seconds[f"{PRODUCTS} float32"])),
        Row(case, "bf16, speed of the float32 reference loop", speed_in_bf16, at_least=faster_in_bf16),
        Row(case, "bf16, time of its matrix products", ratios(in_bf16, seconds[f"{PRODUCTS} bf16"])),
    ]
    return Outcome(case, seconds, size.num_tokens, rows, left_out, {"size": asdict(size)})


def measure_step(scale: Scale, rounds: int, device: torch.device) -> list[Outcome]:
    """A whole update as `train_lm.py` makes it, on one batch of random words."""
    vocab_size = scale.model.get("vocab_size", ONLSTMConfig().vocab_size) - 2  # <eos> and <unk> come by themselves
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write_random_text(text, vocab_size, 10 * vocab_size)
        # The learning rate of the recipe would blow up on noise.
        overrides = [*scale.overrides, "--random_bptt=no", "--learning_rate=1e-3"]
        contestants, num_tokens = {}, 0
        for precision in PRECISIONS:
            run = start_training(scale.recipe, text, precision, Path(folder) / precision, overrides)
            contestants |= step_contestants(run, PATHS, precision)
            num_tokens = next(run.batches.batches(0)).input_ids.numel()
        contestants, left_out = leave_out_unavailable(contestants)
        seconds = take_turns(contestants, rounds, device)
    case = f"whole training step of {scale.recipe}, {num_tokens} tokens"
    reference = seconds[REFERENCE]
    rows = [
        Row(case, "float32, speed of the reference loop", ratios(reference, seconds["auto float32"])),
        Row(case, "bf16, speed of the float32 reference", ratios(reference, seconds["auto bf16"]), at_least=4),
    ]
    for precision in PRECISIONS:
        epoch = [time * PENN_TREEBANK_TOKENS / num_tokens for time in seconds[f"auto {precision}"]]
        figure = f"{precision}, seconds of an epoch of the Penn Treebank text"
        rows.append(Row(case, figure, epoch, at_most=8 if device.type == "cuda" else None))
    rows = [replace(row, optimizer="fused") for row in rows]
    return [Outcome(case, seconds, num_tokens, rows, left_out, {"recipe": scale.recipe})]


def measure_parsing(
    scale: Scale, rounds: int, device: torch.device, sentences: Sequence[Sequence[int]]
) -> list[Outcome]:
    """`parse()` of all sentences at once against one after the other with the reference, both in float32 and bf16.

    The slow side reads another random sample of the sentences in each round, and its time is extrapolated by tokens.

    Args:
        scale: says how large the model is; its weights are random.
        rounds: how often all take their turn.
        device: where.
        sentences: token ids.
    """
    torch.manual_seed(0)
    model = ONLSTMForCausalLM(ONLSTMConfig(**scale.model)).to(device)
    sample = random.Random(0)
    num_tokens, sampled_tokens = sum(map(len, sentences)), []

    def parse_all(implementation: str, precision: str) -> None:
        model.set_implementation(implementation)
        with torch.autocast(device.type, dtype=PRECISIONS[precision], enabled=PRECISIONS[precision] is not None):
            model.parse(sentences, progress=False)

    def parse_one_by_one() -> None:
        model.set_implementation("reference")
        chosen = sample.sample(sentences, min(REFERENCE_SENTENCES_PER_ROUND, len(sentences)))
        for sentence in chosen:
            model.parse(sentence)
        sampled_tokens.append(sum(map(len, chosen)))

    one_by_one = f"{REFERENCE}, sentence by sentence"
    contestants: dict[str, Callable[[], None]] = {one_by_one: parse_one_by_one}
    for precision in PRECISIONS:
        for implementation in FAST_PATHS:
            contestants[f"{implementation} {precision}"] = lambda i=implementation, p=precision: parse_all(i, p)
    contestants, left_out = leave_out_unavailable(contestants)
    sampled_tokens.clear()
    seconds = take_turns(contestants, rounds, device)
    seconds[one_by_one] = [
        time * num_tokens / tokens for time, tokens in zip(seconds[one_by_one], sampled_tokens, strict=True)
    ]
    sizes = "-".join(map(str, model.config.layer_sizes))
    case = f"parsing {len(sentences)} sentences, {num_tokens} words, layers {sizes}"
    speed = ratios(seconds[one_by_one], seconds["auto float32"])
    rows = [
        Row(case, "float32, speed of sentence by sentence with the reference", speed, at_least=30),
        Row(case, "float32, sentences a second", [len(sentences) / time for time in seconds["auto float32"]]),
    ]
    details = {"extrapolated": f"{one_by_one}: from {REFERENCE_SENTENCES_PER_ROUND} random sentences a round"}
    return [Outcome(case, seconds, num_tokens, rows, left_out, details)]


def measure_scoring(trees: Sequence[GoldTree], rounds: int) -> Row:
    """Seconds to build and score the trees of all baselines against gold trees.

    Args:
        trees: the gold trees.
        rounds: how often it is measured.
    """
    seconds = take_turns({"scoring": lambda: score_baselines(trees)}, rounds, torch.device("cpu"))["scoring"]
    return Row(f"scoring {len(trees)} sentences with all baselines", "seconds", seconds, at_most=5)


def random_sentences(scale: Scale, count: int) -> list[list[int]]:
    """Random token ids, 3 to 40 a sentence."""
    generator = random.Random(0)
    vocab_size = scale.model.get("vocab_size", ONLSTMConfig().vocab_size)
    return [generator.choices(range(vocab_size), k=generator.randint(3, 40)) for _ in range(count)]


def measure_growth(scale: Scale, rounds: int, device: torch.device) -> dict[str, list[tuple[int, Outcome]]]:
    """A training pass of the recurrence for growing batch sizes, lengths and widths.

    All sizes take turns in each round, so that the machine's own ups and downs are not taken for growth.

    Returns:
        For "batch size", "length" and "width" each value and what was found for it.
    """
    base = scale.growing
    outer = base.layer_sizes[0]
    sizes = {
        "batch size": [(value, replace(base, batch_size=value)) for value in scale.batch_sizes],
        "length": [(value, replace(base, length=value)) for value in scale.lengths],
        "width": [(value, replace(base, layer_sizes=(outer, value, outer))) for value in scale.widths],
    }
    growth = {}
    for what, steps in sizes.items():
        found = {value: leave_out_unavailable(recurrence_contestants(size, device)) for value, size in steps}
        contestants = {
            (value, name): run for value, (available, _) in found.items() for name, run in available.items()
        }
        seconds = take_turns(contestants, rounds, device, scale.shortest_turn)
        growth[what] = []
        for value, size in steps:
            available, left_out = found[value]
            outcome = Outcome(
                f"{what} {value}: {size}",
                {name: seconds[value, name] for name in available},
                size.num_tokens,
                [],
                left_out,
                {"size": asdict(size)},
            )
            growth[what].append((value, outcome))
    return growth


def length_rows(steps: Sequence[tuple[int, Outcome]]) -> list[Row]:
    """How much the time of a token changes with the length: the slowest length against the fastest, by median."""
    rows = []
    for precision in PRECISIONS:
        times = [[time / outcome.num_tokens for time in outcome.seconds[f"auto {precision}"]] for _, outcome in steps]
        times.sort(key=lambda rounds: Spread.of(rounds).median)
        case = f"time of a token, length {steps[0][0]} to {steps[-1][0]}"
        growth = ratios(times[-1], times[0])
        rows.append(Row(case, f"{precision}, slowest length by fastest", growth, at_most=1.15))
    return rows


def measure_memory(scale: Scale, device: torch.device) -> tuple[dict[str, int], list[Row]]:
    """Peak memory of a training step of the model above its weights and gradients, in bytes, by contestant."""
    batch_size, length = scale.large.batch_size, scale.large.length
    contestants = {
        f"{implementation} {precision}": (implementation, PRECISIONS[precision] is not None)
        for precision in PRECISIONS
        for implementation in PATHS
    }
    peaks = peak_memory(scale.model, batch_size, length, contestants, device.type)
    case = f"peak memory of a training step above weights and gradients, {batch_size} x {length}"
    rows = [
        Row(
            case,
            f"{precision}, of plain autograd through the loop",
            [peaks[f"auto {precision}"] / max(1, peaks[f"reference {precision}"])],
            at_most=0.6,
            allocator="returned",
        )
        for precision in PRECISIONS
    ]
    return peaks, rows


def measure_loss_curves(
    recipe: str, text: Path, overrides: Sequence[str], num_steps: int
) -> tuple[dict[str, list[float]], list[Row]]:
    """Losses of the first training steps with every path, from the same seed, and how far they are from the reference.

    All paths, also in bf16, are compared with the reference in float32.
    """
    curves: dict[str, list[float]] = {}
    rows = []
    bounds = {"float32": 1e-3, "bf16": 0.02}
    with tempfile.TemporaryDirectory() as folder:
        for precision, bound in bounds.items():
            for implementation in ("reference", "auto"):
                run = start_training(recipe, text, precision, Path(folder) / "run", overrides)
                name = f"{implementation} {precision}"
                curves[name] = loss_curve(run, implementation, num_steps)
                if name != REFERENCE:
                    difference = largest_relative_difference(curves[name], curves[REFERENCE])
                    case = f"loss of {num_steps} training steps of {recipe}"
                    figure = f"{name}, largest relative difference from the float32 reference"
                    rows.append(Row(case, figure, [difference], at_most=bound, optimizer="fused"))
    return curves, rows
