"""Cases of the speed benchmark and the figures that they report."""

import io
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice, pairwise
from pathlib import Path

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import patch_environment
from torch import nn

from eval.speed.measurement import Outcome, ratios, row, take_turns
from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, PRPNConfig
from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from onlstm_hf.models.modeling_prpn import ReadingLayer
from onlstm_hf.utils.iteration import progress_bar
from training.language_models.recipe import parse_recipe
from training.language_models.text_batches import Batch
from training.loop.run import TrainingRun
from training.train_lm import LanguageModeling

RECIPES = Path(__file__).resolve().parents[2] / "training" / "recipes"
# Implementations of the recurrence; "scan" is for export only.
PATHS = tuple(name for name in ONLSTMLayer.implementations if name != "scan")
PRECISIONS = {"float32": None, "bf16": torch.bfloat16}
REFERENCE, LSTM = "reference float32", "nn.LSTM"
NUM_REFERENCE_SENTENCES = 20


@dataclass(frozen=True)
class Stack:
    """Shapes of a stack of recurrent layers; `layer_sizes` begins with the size of the input."""

    batch_size: int
    length: int
    layer_sizes: tuple[int, ...]
    chunk_size: int = 10

    def __str__(self) -> str:
        return f"{self.batch_size} x {self.length}, {'-'.join(map(str, self.layer_sizes))}"


STACKS = (Stack(20, 70, (400, 1150, 1150, 400)), Stack(32, 35, (200, 400, 200)))
TINY_STACKS = (Stack(2, 4, (8, 12, 8), 4),)
TINY_MODEL = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 12, "chunk_size": 4}
TINY_RECIPE = ["--batch_size=2", "--bptt_length=6", "--model.embedding_size=40", "--model.hidden_size=40"]
# Training on random words would diverge with the learning rates of the recipes.
OVERRIDES = ["--random_bptt=no", "--learning_rate=1e-3"]
NUM_LOSSES, LOSS_OVERRIDES = 200, ["--batch_size=8", "--bptt_length=35"]
NUM_NEIGHBOURS, SHORTEST_TURN = (0, 1, 2, 4), 0.3
# All layers of the PRPN's reading network have the same size, so it is compared with another LSTM than the ON-LSTM.
NEIGHBOUR_STACKS = {"ON-LSTM": Stack(32, 35, (200, 400, 200)), "PRPN": Stack(32, 35, (200, 400, 400))}
TINY_NEIGHBOUR_STACKS = {"ON-LSTM": Stack(2, 4, (8, 12, 8), 4), "PRPN": Stack(2, 4, (8, 12, 12), 4)}
# Neighbours end with their parent process, also if that is killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


def measure_recurrence(quick: bool, rounds: int, device: torch.device) -> list[Outcome]:
    """Times the training pass of recurrent stacks by every path and by `torch.nn.LSTM` layers of the same sizes."""
    stacks, shortest_turn = (TINY_STACKS, 0.0) if quick else (STACKS, 0.2)
    return [_measure_stack(stack, rounds, device, shortest_turn) for stack in stacks]


def _measure_stack(stack: Stack, rounds: int, device: torch.device, shortest_turn: float) -> Outcome:
    contestants = {}
    for precision, dtype in PRECISIONS.items():
        for path in PATHS:
            contestants[f"{path} {precision}"] = onlstm_pass(stack, dtype, device, path)
        contestants[f"{LSTM} {precision}"] = lstm_pass(stack, dtype, device)
    seconds, left_out = take_turns(contestants, rounds, device, shortest_turn)
    case = f"recurrent stack, training, {stack}"
    rows = [
        row(case, "float32, speed of the reference loop", ratios(seconds[REFERENCE], seconds["auto float32"])),
        row(case, f"float32, time of {LSTM}", ratios(seconds["auto float32"], seconds[f"{LSTM} float32"])),
        row(case, "bf16, speed of the float32 reference loop", ratios(seconds[REFERENCE], seconds["auto bf16"])),
    ]
    return Outcome(case, seconds, stack.batch_size * stack.length, rows, left_out)


def onlstm_pass(
    stack: Stack, dtype: torch.dtype | None, device: torch.device, path: str = "auto"
) -> Callable[[], None]:
    """Returns the `training_pass` of ON-LSTM layers from their initial state."""
    layers = [ONLSTMLayer(*sizes, stack.chunk_size, weight_dropout=0.0) for sizes in pairwise(stack.layer_sizes)]
    for layer in layers:
        layer.implementation = path

    def run_layer(layer: ONLSTMLayer, inputs: torch.Tensor) -> torch.Tensor:
        state = (tensor.to(device) for tensor in layer.initial_state(stack.batch_size))
        return layer(inputs, *state, None).outputs

    return training_pass(layers, run_layer, stack, dtype, device)


def lstm_pass(stack: Stack, dtype: torch.dtype | None, device: torch.device) -> Callable[[], None]:
    """Returns the `training_pass` of `torch.nn.LSTM` layers."""
    layers = [nn.LSTM(*sizes) for sizes in pairwise(stack.layer_sizes)]
    return training_pass(layers, lambda layer, inputs: layer(inputs)[0], stack, dtype, device)


def training_pass(
    layers: Sequence[nn.Module], run_layer: Callable, stack: Stack, dtype: torch.dtype | None, device: torch.device
) -> Callable[[], None]:
    """Returns a function that computes outputs and all gradients of a stack of layers once.

    `run_layer` maps a layer and its inputs `[T, B, I]` to outputs `[T, B, H]`. Without a `dtype` there is no autocast.
    """
    modules = nn.ModuleList(layers).to(device)
    inputs = torch.randn(stack.length, stack.batch_size, stack.layer_sizes[0], device=device, requires_grad=True)
    grad_outputs = torch.randn(stack.length, stack.batch_size, stack.layer_sizes[-1], device=device)

    def run() -> None:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            outputs = inputs
            for layer in modules:
                outputs = run_layer(layer, outputs)
        torch.autograd.grad(outputs, [inputs, *modules.parameters()], grad_outputs.to(outputs.dtype))

    return run


@contextmanager
def busy_neighbours(number: int) -> Iterator[None]:
    """Runs this number of processes during the block, each of which keeps one core busy."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_neighbours(quick: bool, rounds: int) -> list[Outcome]:
    """Times the float32 training pass of both compiled operators and of `torch.nn.LSTM` layers of the same sizes."""
    stacks, numbers = (TINY_NEIGHBOUR_STACKS, (0, 1)) if quick else (NEIGHBOUR_STACKS, NUM_NEIGHBOURS)
    device, contestants = torch.device("cpu"), {}
    for name, stack in stacks.items():
        measured_pass = onlstm_pass if name == "ON-LSTM" else prpn_pass
        contestants[f"{name} {stack}"] = measured_pass(stack, None, device)
        contestants[f"{LSTM} {stack}"] = lstm_pass(stack, None, device)
    (num_tokens,) = {stack.batch_size * stack.length for stack in stacks.values()}
    outcomes = []
    for number in numbers:
        with busy_neighbours(number):
            seconds, left_out = take_turns(contestants, rounds, device, 0.0 if quick else SHORTEST_TURN)
        case, rows = f"training with {torch.get_num_threads()} threads beside {number} busy processes", []
        for name, stack in stacks.items():
            slower = ratios(seconds[f"{name} {stack}"], seconds[f"{LSTM} {stack}"])
            rows.append(row(case, f"{name} {stack}, time of {LSTM}", slower))
        outcomes.append(Outcome(case, seconds, num_tokens, rows, left_out))
    return outcomes


def prpn_pass(stack: Stack, dtype: torch.dtype | None, device: torch.device) -> Callable[[], None]:
    """Returns the `training_pass` of a PRPN's reading network with open gates."""
    config = PRPNConfig(hidden_size=stack.layer_sizes[-1], input_dropout=0.0, recurrent_dropout=0.0)
    layers = [ReadingLayer(config, input_size, 0.0) for input_size in stack.layer_sizes[:-1]]
    gates = torch.ones(stack.batch_size, stack.length, config.num_slots)

    def run_layer(layer: ReadingLayer, inputs: torch.Tensor) -> torch.Tensor:
        state = layer.initial_state(stack.batch_size)
        tape, _, _ = layer(inputs.transpose(0, 1), *state, gates)
        return tape[:, config.num_slots :].transpose(0, 1)

    return training_pass(layers, run_layer, stack, dtype, device)


def measure_step(quick: bool, rounds: int, device: torch.device, recipe: str) -> list[Outcome]:
    """Times a whole update of `train_lm.py` with a recipe of `training/recipes`, on one batch of random words."""
    overrides = OVERRIDES + (TINY_RECIPE if quick else [])
    contestants: dict[str, Callable[[], None]] = {}

    def update(run: TrainingRun, batch: Batch, path: str) -> None:
        run.accelerator.unwrap_model(run.model).set_implementation(path)
        run.update([batch])

    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        _write_random_text(text, 50 if quick else 9998)  # the tokenizer adds <eos> and <unk>
        for precision in PRECISIONS:
            run = start_training(recipe, text, precision, Path(folder) / precision, overrides, device)
            batch = next(run.batches.batches(0))
            contestants |= {f"{path} {precision}": partial(update, run, batch, path) for path in PATHS}
        seconds, left_out = take_turns(contestants, rounds, device)
    num_tokens = batch.input_ids.numel()
    case = f"whole training step of {recipe}, {num_tokens} tokens"
    rows = [
        row(case, "float32, speed of the reference loop", ratios(seconds[REFERENCE], seconds["auto float32"])),
        row(case, "bf16, speed of the float32 reference", ratios(seconds[REFERENCE], seconds["auto bf16"])),
    ]
    for precision in PRECISIONS:
        speed = [num_tokens / time for time in seconds[f"auto {precision}"]]
        rows.append(row(case, f"{precision}, tokens a second", speed))
    return [Outcome(case, seconds, num_tokens, rows, left_out)]


def _write_random_text(path: Path, vocab_size: int) -> None:
    """Writes a text of ten times the vocabulary size, in which every word occurs."""
    generator = random.Random(0)
    words = [f"w{number}" for number in range(vocab_size)]
    words += generator.choices(words, k=9 * vocab_size)
    lines = (" ".join(words[start : start + 20]) for start in range(0, len(words), 20))
    path.write_text("\n".join(lines), encoding="utf-8")


def measure_parsing(
    quick: bool, rounds: int, device: torch.device, sentences: Sequence[Sequence[int]]
) -> list[Outcome]:
    """Times `parse()` of all sentences at once against one sentence at a time with the reference.

    The weights are random. The reference reads a random sample of the sentences (token ids), and its time is
    extrapolated by tokens.
    """
    torch.manual_seed(0)
    model = ONLSTMForCausalLM(ONLSTMConfig(**TINY_MODEL if quick else {})).to(device)
    sample = random.Random(0).sample(sentences, min(NUM_REFERENCE_SENTENCES, len(sentences)))
    num_tokens, num_sampled = sum(map(len, sentences)), sum(map(len, sample))

    def parse_all(dtype: torch.dtype | None) -> None:
        model.set_implementation("auto")
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            model.parse(sentences, progress=False)

    def parse_one_by_one() -> None:
        model.set_implementation("reference")
        for sentence in sample:
            model.parse(sentence)

    one_by_one = f"{REFERENCE}, sentence by sentence"
    contestants = {one_by_one: parse_one_by_one}
    contestants |= {f"auto {precision}": partial(parse_all, dtype) for precision, dtype in PRECISIONS.items()}
    seconds, left_out = take_turns(contestants, rounds, device)
    seconds[one_by_one] = [time * num_tokens / num_sampled for time in seconds[one_by_one]]
    sizes = "-".join(map(str, model.config.layer_sizes))
    case = f"parsing {len(sentences)} sentences, {num_tokens} words, layers {sizes}"
    speed = ratios(seconds[one_by_one], seconds["auto float32"])
    rows = [
        row(case, "float32, speed of sentence by sentence with the reference", speed),
        row(case, "float32, sentences a second", [len(sentences) / time for time in seconds["auto float32"]]),
    ]
    return [Outcome(case, seconds, num_tokens, rows, left_out)]


def measure_losses(quick: bool, device: torch.device, text: Path) -> tuple[dict[str, list[float]], list[dict]]:
    """Returns the losses of the first updates by path and precision, and rows that compare them with the reference."""
    recipe, curves, rows = "onlstm_ptb_small", {}, []
    num_steps, overrides = (3, TINY_RECIPE) if quick else (NUM_LOSSES, LOSS_OVERRIDES)
    with tempfile.TemporaryDirectory() as folder:
        for precision in PRECISIONS:
            for path in ("reference", "auto"):
                run = start_training(recipe, text, precision, Path(folder) / "run", overrides, device)
                name = f"{path} {precision}"
                run.accelerator.unwrap_model(run.model).set_implementation(path)
                steps = progress_bar(islice(updates(run), num_steps), total=num_steps, unit="update")
                curves[name] = [loss.item() for _, loss in steps]
                if name != REFERENCE:
                    figure = f"{name}, largest relative difference from the float32 reference"
                    difference = np.abs(np.divide(curves[name], curves[REFERENCE]) - 1).max()
                    rows.append(row(f"loss of {num_steps} training steps of {recipe}", figure, [float(difference)]))
    return curves, rows


def start_training(
    recipe: str, text: Path, precision: str, folder: Path, overrides: Sequence[str], device: torch.device
) -> TrainingRun:
    """Returns a new run of train_lm.py with a recipe on a text, without a progress bar; the folder is emptied."""
    # Accelerate keeps the precision of the first run for the whole process, but several runs start here.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    shutil.rmtree(folder, ignore_errors=True)
    arguments = [str(RECIPES / f"{recipe}.yaml")]
    arguments += [f"--train_files={text}", f"--validation_files={text}", f"--output_dir={folder}"]
    arguments += [f"--mixed_precision={'no' if precision == 'float32' else precision}", *overrides]
    on_cpu = {"ACCELERATE_USE_CPU": "true"} if device.type == "cpu" else {}
    with redirect_stderr(io.StringIO()), patch_environment(**on_cpu):  # the progress bar keeps this stderr
        return TrainingRun(LanguageModeling(parse_recipe(arguments), arguments))


def updates(run: TrainingRun) -> Iterator[tuple[int, torch.Tensor]]:
    """Makes updates of a new run without end, and yields the number of tokens and the loss in nats of each."""
    losses: list[torch.Tensor] = []
    run.log.add = lambda of_update, num_items: losses.append(of_update["loss"])
    for batch in chain.from_iterable(run.batches.batches(epoch) for epoch in count()):
        run.update([batch])
        yield batch.input_ids.numel(), losses.pop()
