"""What takes turns in the speed benchmark: recurrent stacks, the LSTM stacks and matrix products of the same sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from onlstm_hf.fast.onlstm.operator import IMPLEMENTATIONS
from onlstm_hf.models.modeling_onlstm import ONLSTMLayer

# The ways to compute the recurrence; "scan" is for export only.
PATHS = tuple(name for name in IMPLEMENTATIONS if name != "scan")
PRECISIONS = {"float32": None, "bf16": torch.bfloat16}
LSTM, PRODUCTS = "nn.LSTM", "products"


@dataclass(frozen=True)
class StackSize:
    """A stack of recurrent layers and its input.

    Attributes:
        batch_size: sequences side by side.
        length: steps of each.
        layer_sizes: units of the input and of every layer.
        chunk_size: units of a chunk of ordered neurons.
    """

    batch_size: int
    length: int
    layer_sizes: tuple[int, ...]
    chunk_size: int = 10

    def __str__(self) -> str:
        return f"{self.batch_size} x {self.length}, {'-'.join(map(str, self.layer_sizes))}"

    @property
    def num_tokens(self) -> int:
        return self.batch_size * self.length

    def inputs(self, device: torch.device) -> torch.Tensor:
        """Random inputs `[T, B, input size]` that require a gradient, as embedded words do."""
        return torch.randn(self.length, self.batch_size, self.layer_sizes[0], device=device, requires_grad=True)


def recurrence_contestants(size: StackSize, device: torch.device) -> dict[str, Callable[[], None]]:
    """A training pass of every path and of LSTM layers, and the matrix products alone; by `"NAME PRECISION"`."""
    contestants = {}
    for precision in PRECISIONS:
        for implementation in PATHS:
            stack = _ordered_neurons_stack(size, implementation, device)
            contestants[f"{implementation} {precision}"] = _training_pass(stack, size, precision, device)
        lstm = _lstm_stack(size, device)
        contestants[f"{LSTM} {precision}"] = _training_pass(lstm, size, precision, device)
        contestants[f"{PRODUCTS} {precision}"] = _products(size, PRECISIONS[precision] or torch.float32, device)
    return contestants


def _ordered_neurons_stack(size: StackSize, implementation: str, device: torch.device) -> nn.Module:
    layers = [ONLSTMLayer(*sizes, size.chunk_size, weight_dropout=0.0) for sizes in pairwise(size.layer_sizes)]
    for layer in layers:
        layer.implementation = implementation

    def run(layer: ONLSTMLayer, inputs: torch.Tensor) -> torch.Tensor:
        state = (tensor.to(inputs.device) for tensor in layer.initial_state(inputs.shape[1]))
        return layer(inputs, *state, None).outputs

    return _Stack(layers, run).to(device)


def _lstm_stack(size: StackSize, device: torch.device) -> nn.Module:
    def run(layer: nn.LSTM, inputs: torch.Tensor) -> torch.Tensor:
        try:
            return layer(inputs)[0]
        except RuntimeError as error:
            if "could not create a primitive" not in str(error):
                raise
            raise ValueError("oneDNN has no LSTM in this precision for this CPU") from error

    return _Stack([nn.LSTM(*sizes) for sizes in pairwise(size.layer_sizes)], run).to(device)


class _Stack(nn.Module):
    def __init__(self, layers: list[nn.Module], run: Callable[[nn.Module, torch.Tensor], torch.Tensor]):
        super().__init__()
        self.layers, self.run = nn.ModuleList(layers), run

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = self.run(layer, inputs)
        return inputs


def _training_pass(stack: nn.Module, size: StackSize, precision: str, device: torch.device) -> Callable[[], None]:
    inputs = size.inputs(device)
    grad_outputs = torch.randn(size.length, size.batch_size, size.layer_sizes[-1], device=device)
    wanted = [inputs, *stack.parameters()]

    def run() -> None:
        with torch.autocast(device.type, dtype=PRECISIONS[precision], enabled=PRECISIONS[precision] is not None):
            outputs = stack(inputs)
        torch.autograd.grad(outputs, wanted, grad_outputs.to(outputs.dtype))

    return run


def _products(size: StackSize, dtype: torch.dtype, device: torch.device) -> Callable[[], None]:
    """The matrix products that a training pass of the stack cannot do without, and nothing else.

    For every layer: the input projection of the whole sequence, the product of each step with the recurrent weight;
    backwards both again, and the gradients of both weights as one product each.
    """
    layers = []
    for input_size, hidden_size in pairwise(size.layer_sizes):
        num_gates = 4 * hidden_size + 2 * (hidden_size // size.chunk_size)
        shapes = {
            "inputs": (size.num_tokens, input_size),
            "hidden": (size.num_tokens, hidden_size),
            "gates": (size.num_tokens, num_gates),
            "input_weight": (num_gates, input_size),
            "recurrent_weight": (num_gates, hidden_size),
        }
        layers.append({name: torch.randn(shape, device=device, dtype=dtype) for name, shape in shapes.items()})

    def run() -> None:
        for layer in layers:
            layer["inputs"] @ layer["input_weight"].t()
            for step in layer["hidden"].split(size.batch_size):
                step @ layer["recurrent_weight"].t()
            for step in layer["gates"].split(size.batch_size):
                step @ layer["recurrent_weight"]
            layer["gates"] @ layer["input_weight"]
            layer["gates"].t() @ layer["inputs"]
            layer["gates"].t() @ layer["hidden"]

    return run
