"""Training passes on a CPU whose cores other processes keep busy."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from eval.speed.cases import LSTM, Stack, lstm_pass, onlstm_pass, training_pass
from eval.speed.measurement import Outcome, ratios, row, take_turns
from onlstm_hf import PRPNConfig
from onlstm_hf.models.modeling_prpn import ReadingLayer

NUM_NEIGHBOURS, SHORTEST_TURN = (0, 1, 2, 4), 0.3
# All layers of the PRPN's reading network have the same size, so it is compared with another LSTM than the ON-LSTM.
STACKS = {"ON-LSTM": Stack(32, 35, (200, 400, 200)), "PRPN": Stack(32, 35, (200, 400, 400))}
TINY_NUM_NEIGHBOURS = (0, 1)
TINY_STACKS = {"ON-LSTM": Stack(2, 4, (8, 12, 8), 4), "PRPN": Stack(2, 4, (8, 12, 12), 4)}
# Neighbours end with their parent process, also if that is killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Runs `count` processes during the block, each of which keeps one core busy."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_neighbours(quick: bool, rounds: int) -> list[Outcome]:
    """Times the float32 training pass of both compiled operators and of `torch.nn.LSTM` layers of the same sizes."""
    stacks, numbers = (TINY_STACKS, TINY_NUM_NEIGHBOURS) if quick else (STACKS, NUM_NEIGHBOURS)
    device, contestants = torch.device("cpu"), {}
    for name, stack in stacks.items():
        measured_pass = onlstm_pass if name == "ON-LSTM" else prpn_pass
        contestants[f"{name} {stack}"] = measured_pass(stack, None, device)
        contestants[f"{LSTM} {stack}"] = lstm_pass(stack, None, device)
    (num_tokens,) = {stack.batch_size * stack.length for stack in stacks.values()}
    outcomes = []
    for count in numbers:
        with busy_neighbours(count):
            seconds, left_out = take_turns(contestants, rounds, device, 0.0 if quick else SHORTEST_TURN)
        case, rows = f"training with {torch.get_num_threads()} threads beside {count} busy processes", []
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
