"""A new cell in one file: an LSTM with the master gates of the ON-LSTM in place of its input and forget gate.

    f = cumax(W_f x + U_f h)                        i = 1 - cumax(W_i x + U_i h)
    c' = f * c + i * tanh(W_c x + U_c h)            h' = sigmoid(W_o x + U_o h) * tanh(c')

Its syntactic distances are one minus the mean of f. This trains it on the toy corpus and shows its trees:

    python training/quickstart.py --output_dir runs/cumax_lstm \\
        --model_code examples/cumax_lstm.py --model_type cumax_lstm --model.parse_layer 0
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from onlstm_hf.models.configuration_onlstm import ONLSTMConfig
from onlstm_hf.models.modeling_onlstm import ONLSTMForCausalLM, ONLSTMModel
from onlstm_hf.ops.dropout import drop_connect
from onlstm_hf.ops.ordered_neurons.equations import cumax
from onlstm_hf.ops.ordered_neurons.operator import OrderedNeuronsOutput


class CumaxLSTMConfig(ONLSTMConfig):
    model_type = "cumax_lstm"


class CumaxLSTMLayer(nn.Module):
    def __init__(self, input_size: int, size: int, chunk_size: int, weight_dropout: float):
        super().__init__()
        self.size, self.chunk_size, self.weight_dropout = size, chunk_size, weight_dropout
        num_chunks = size // chunk_size
        self.gate_sizes = [num_chunks, num_chunks, size, size]
        self.input_projection = nn.Linear(input_size, sum(self.gate_sizes))
        self.recurrent_projection = nn.Linear(size, sum(self.gate_sizes))

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None
    ) -> OrderedNeuronsOutput:
        """`inputs` `[T, B, input_size]`, `hidden` and `cell` `[B, H]`, `mask` `[T, B]` (0: padding) or `None`."""
        weight = drop_connect(self.recurrent_projection.weight, self.weight_dropout, self.training)
        outputs, forget_gates, input_gates = [], [], []
        for step, gates in enumerate(self.input_projection(inputs)):
            gates = gates + F.linear(hidden, weight, self.recurrent_projection.bias)
            forget, write, candidate, output = gates.split(self.gate_sizes, dim=-1)
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
            forget_gates.append(forget_gate)
            input_gates.append(input_gate)
        forget_distances = 1 - torch.stack(forget_gates).mean(dim=-1)
        input_distances = torch.stack(input_gates).mean(dim=-1)
        return OrderedNeuronsOutput(torch.stack(outputs), cell, forget_distances, input_distances)

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = self.recurrent_projection.weight.new_zeros(batch_size, self.size)
        return zeros, zeros.clone()

    @staticmethod
    def last_state(output: OrderedNeuronsOutput) -> tuple[torch.Tensor, torch.Tensor]:
        return output.outputs[-1], output.cell


class CumaxLSTMModel(ONLSTMModel):
    config_class = CumaxLSTMConfig

    def build_layer(self, input_size: int, size: int) -> CumaxLSTMLayer:
        return CumaxLSTMLayer(input_size, size, self.config.chunk_size, self.config.weight_dropout)


class CumaxLSTMForCausalLM(ONLSTMForCausalLM):
    config_class = CumaxLSTMConfig
    model_class = CumaxLSTMModel


AutoConfig.register("cumax_lstm", CumaxLSTMConfig, exist_ok=True)
AutoModelForCausalLM.register(CumaxLSTMConfig, CumaxLSTMForCausalLM, exist_ok=True)
