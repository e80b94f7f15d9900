"""A fast path for a custom cell: the cell of `minimal_cell.py` without an autograd graph over time.

    python training/quickstart.py --output_dir runs/fast_cell \\
        --model_code examples/fast_cell.py --model_type fast_cumax_lstm --model.parse_layer 0

The named tuples define the inputs and outputs of the path, `forward` and `backward` implement it, and
`CumaxRecurrence` makes an operator of them. `--implementation reference` runs the equations of `reference` instead.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from onlstm_hf.fast.recurrence.fast_path import FastPath
from onlstm_hf.fast.recurrence.operator import Recurrence
from onlstm_hf.models.configuration_onlstm import ONLSTMConfig
from onlstm_hf.models.dropout import drop_connect
from onlstm_hf.models.modeling_onlstm import ONLSTMForCausalLM, ONLSTMLayerOutput, ONLSTMModel, cumax


class Inputs(NamedTuple):
    input_gates: torch.Tensor  # [T, B, 2 * C + 2 * H], the logits of f and i, then those of the candidate and of o
    weight: torch.Tensor  # [2 * C + 2 * H, H], the map U of the previous hidden state
    hidden: torch.Tensor  # [B, H]
    cell: torch.Tensor  # [B, H]
    mask: torch.Tensor | None  # [T, B], False at padding


class Options(NamedTuple):
    num_chunks: int
    product_in_bfloat16: bool


class Trace(NamedTuple):
    outputs: torch.Tensor  # [T, B, H]
    last_cell: torch.Tensor  # [B, H]
    means: torch.Tensor  # [T, B, 2], of f and of i
    cells: torch.Tensor  # [T, B, H], before each step
    softmaxes: torch.Tensor  # [T, B, 2, C], behind f and i
    activations: torch.Tensor  # [T, B, 2, H], tanh of the candidate and sigmoid of the output gate

    @classmethod
    def empty(cls, inputs: Inputs, options: Options) -> "Trace":
        (length, batch_size, _), size = inputs.input_gates.shape, inputs.hidden.shape[1]
        shapes = (size,), (2,), (size,), (2, options.num_chunks), (2, size)
        outputs, *others = (inputs.hidden.new_empty(length, batch_size, *shape) for shape in shapes)
        return cls(outputs, torch.empty_like(inputs.cell), *others)


class Gradients(NamedTuple):
    input_gates: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor


def forward(inputs: Inputs, options: Options) -> Trace:
    """Computes the steps with plain operations that write into the trace."""
    trace, num_chunks = Trace.empty(inputs, options), options.num_chunks
    weight, hidden, cell = product_weight(inputs, options).t(), inputs.hidden, inputs.cell
    for step, input_gates in enumerate(inputs.input_gates):
        gates = input_gates + hidden.to(weight.dtype) @ weight
        torch.softmax(gates[:, : 2 * num_chunks].unflatten(1, (2, num_chunks)), dim=-1, out=trace.softmaxes[step])
        candidate, output = trace.activations[step].unbind(1)
        torch.tanh(gates[:, 2 * num_chunks : -len(weight)], out=candidate)
        torch.sigmoid(gates[:, -len(weight) :], out=output)
        forget_gate, input_gate = master_gates(trace.softmaxes[step], cell)
        trace.cells[step] = cell
        new_cell = torch.addcmul(forget_gate * cell, input_gate, candidate)
        new_hidden = torch.mul(new_cell.tanh(), output, out=trace.outputs[step])
        if inputs.mask is not None:
            is_real = inputs.mask[step].unsqueeze(-1)
            new_hidden.copy_(new_hidden.where(is_real, hidden))
            new_cell = new_cell.where(is_real, cell)
        hidden, cell = new_hidden, new_cell
    trace.last_cell.copy_(cell)
    forget_mean, not_input_mean = trace.softmaxes.cumsum(-1).mean(-1).unbind(-1)
    torch.stack([forget_mean, 1 - not_input_mean], dim=-1, out=trace.means)
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """Applies the chain rule from the last step to the first; terms of single steps are computed for all at once."""
    num_chunks = options.num_chunks
    candidate, output = trace.activations.unbind(2)
    forget_gate, input_gate = master_gates(trace.softmaxes, trace.cells)
    tanh_cell = torch.cat([trace.cells[1:], trace.last_cell.unsqueeze(0)]).tanh_()
    cell_per_hidden = output * (1 - tanh_cell.square())
    candidate_per_cell = input_gate * (1 - candidate.square())
    output_per_hidden = tanh_cell * output * (1 - output)
    # Derivatives of the cell state with respect to f and to the cumax of i, for all units of a chunk.
    gates_per_cell = torch.stack([trace.cells, -candidate], dim=2).unflatten(-1, (num_chunks, -1))
    grad_cumaxes = 0.0
    if grad_trace.means is not None:
        grad_cumaxes = grad_trace.means.unsqueeze(-1) * trace.cells.new_tensor([[1.0], [-1.0]]) / num_chunks

    weight, grad_gates = product_weight(inputs, options), torch.empty_like(inputs.input_gates)
    grad_hidden = torch.zeros_like(trace.last_cell)
    grad_cell = torch.zeros_like(trace.last_cell) if grad_trace.last_cell is None else grad_trace.last_cell
    for step in reversed(range(len(trace.outputs))):
        if grad_trace.outputs is not None:
            grad_hidden = grad_hidden + grad_trace.outputs[step]
        passed_on = 0.0
        if inputs.mask is not None:  # padding passes both gradients to the previous step
            is_real = inputs.mask[step].unsqueeze(-1)
            passed_on, passed_on_cell = grad_hidden.where(~is_real, 0), grad_cell.where(~is_real, 0)
            grad_hidden, grad_cell = grad_hidden.where(is_real, 0), grad_cell.where(is_real, 0)
        grad_cell = torch.addcmul(grad_cell, grad_hidden, cell_per_hidden[step])
        grad_logits, grad_candidate, grad_output = grad_gates[step].split([2 * num_chunks, *[len(weight[0])] * 2], -1)
        torch.mul(grad_cell, candidate_per_cell[step], out=grad_candidate)
        torch.mul(grad_hidden, output_per_hidden[step], out=grad_output)
        of_step = (gates_per_cell[step] * grad_cell.unflatten(-1, (1, num_chunks, -1))).sum(-1)
        of_step = of_step + (grad_cumaxes if grad_trace.means is None else grad_cumaxes[step])
        # Each entry of a softmax contributes to its own and all later entries of the cumulative sum.
        of_step, softmaxes = of_step.flip(-1).cumsum(-1).flip(-1), trace.softmaxes[step]
        centred = of_step - (of_step * softmaxes).sum(-1, keepdim=True)
        grad_logits.copy_((centred * softmaxes).flatten(1))
        grad_cell = grad_cell * forget_gate[step]
        grad_hidden = (grad_gates[step].to(weight.dtype) @ weight).to(grad_cell.dtype) + passed_on
        if inputs.mask is not None:
            grad_cell = grad_cell + passed_on_cell
    return Gradients(grad_gates, grad_hidden, grad_cell)


def product_weight(inputs: Inputs, options: Options) -> torch.Tensor:
    return inputs.weight.to(torch.bfloat16) if options.product_in_bfloat16 else inputs.weight


def master_gates(softmaxes: torch.Tensor, units: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns f and i for all units `[..., H]` from both softmaxes `[..., 2, C]`."""
    chunk_size = units.shape[-1] // softmaxes.shape[-1]
    forget_gate, not_input_gate = softmaxes.cumsum(-1).repeat_interleave(chunk_size, dim=-1).unbind(-2)
    return forget_gate, 1 - not_input_gate


class CumaxRecurrence(Recurrence):
    """Operator of the recurrence: gives the compiler its shapes and autograd the gradient of the weight."""

    name = "fast_cumax_lstm"
    Inputs, Options, Trace = Inputs, Options, Trace

    def input_gradients(self, gradients: Gradients, trace: Trace, inputs: Inputs, options: Options) -> Inputs:
        previous = torch.cat([inputs.hidden.unsqueeze(0), trace.outputs[:-1]])
        grad_weight = gradients.input_gates.flatten(0, 1).t() @ previous.flatten(0, 1)
        return Inputs(gradients.input_gates, grad_weight, gradients.hidden, gradients.cell, None)


RECURRENCE = CumaxRecurrence(__name__, {"fused": FastPath(forward, backward)})


class FastCumaxLSTMConfig(ONLSTMConfig):
    model_type = "fast_cumax_lstm"


class FastCumaxLSTMLayer(nn.Module):
    implementations = ("auto", "reference", *RECURRENCE.paths)
    implementation = "auto"

    def __init__(self, input_size: int, size: int, chunk_size: int, weight_dropout: float):
        super().__init__()
        self.size, self.chunk_size, self.weight_dropout = size, chunk_size, weight_dropout
        num_chunks = size // chunk_size
        self.gate_sizes = [num_chunks, num_chunks, size, size]
        self.input_projection = nn.Linear(input_size, sum(self.gate_sizes))
        self.recurrent_projection = nn.Linear(size, sum(self.gate_sizes))

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None
    ) -> ONLSTMLayerOutput:
        """`inputs` `[T, B, input_size]`, `hidden` and `cell` `[B, H]`, `mask` `[T, B]` (0: padding) or `None`."""
        weight = drop_connect(self.recurrent_projection.weight, self.weight_dropout, self.training)
        gates = self.input_projection(inputs) + self.recurrent_projection.bias
        if self.implementation == "reference":
            outputs, cell, means = self.reference(Inputs(gates, weight, hidden, cell, mask))
        else:
            # States are float32 or better; under autocast the product with the weight is in bfloat16.
            dtype, device_type = torch.promote_types(gates.dtype, torch.float32), gates.device.type
            in_bfloat16 = torch.is_autocast_enabled(device_type) and gates.dtype == torch.bfloat16
            tensors = (tensor.to(dtype) for tensor in (gates, weight, hidden, cell))
            options = Options(self.size // self.chunk_size, in_bfloat16)
            with torch.autocast(device_type, enabled=False):
                outputs, cell, means, *_ = RECURRENCE.run(Inputs(*tensors, mask), options, "fused")
            outputs = outputs.to(gates.dtype)
        forget_means, input_means = means.unbind(dim=-1)
        return ONLSTMLayerOutput(outputs, (outputs[-1], cell), 1 - forget_means, input_means)

    def reference(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Computes the first three entries of a `Trace` step by step; this is the definition."""
        _, weight, hidden, cell, mask = inputs
        outputs, means = [], []
        for step, gates in enumerate(inputs.input_gates):
            forget, write, candidate, output = (gates + F.linear(hidden, weight)).split(self.gate_sizes, dim=-1)
            forget_gate = cumax(forget).repeat_interleave(self.chunk_size, dim=-1)
            input_gate = 1 - cumax(write).repeat_interleave(self.chunk_size, dim=-1)
            new_cell = forget_gate * cell + input_gate * candidate.tanh()
            new_hidden = output.sigmoid() * new_cell.tanh()
            if mask is None:
                hidden, cell = new_hidden, new_cell
            else:
                is_real = mask[step].unsqueeze(-1)
                hidden, cell = new_hidden.where(is_real, hidden), new_cell.where(is_real, cell)
            outputs.append(hidden)
            means.append(torch.stack([forget_gate.mean(dim=-1), input_gate.mean(dim=-1)], dim=-1))
        return torch.stack(outputs), cell, torch.stack(means)

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros(batch_size, self.size, dtype=self.recurrent_projection.weight.dtype)
        return zeros, zeros.clone()


class FastCumaxLSTMModel(ONLSTMModel):
    config_class = FastCumaxLSTMConfig
    layer_class = FastCumaxLSTMLayer


class FastCumaxLSTMForCausalLM(ONLSTMForCausalLM):
    config_class = FastCumaxLSTMConfig
    model_class = FastCumaxLSTMModel


AutoConfig.register("fast_cumax_lstm", FastCumaxLSTMConfig, exist_ok=True)
AutoModelForCausalLM.register(FastCumaxLSTMConfig, FastCumaxLSTMForCausalLM, exist_ok=True)
