"""A new cell in one file: an LSTM whose input and forget gates are the master gates of the ON-LSTM.

    f = cumax(W_f x + U_f h)                        i = 1 - cumax(W_i x + U_i h)
    c' = f * c + i * tanh(W_c x + U_c h)            h' = sigmoid(W_o x + U_o h) * tanh(c')

Its syntactic distances are one minus the mean of f. Train it on the toy corpus and print its trees:

    python training/quickstart.py --output_dir runs/cumax_lstm \\
        --model_code examples/minimal_cell.py --model_type cumax_lstm --model.parse_layer 0

To change the equations, edit `step` and run the command again. `fast_cell.py` adds a fast path to this cell.
"""

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from onlstm_hf.models.configuration_onlstm import ONLSTMConfig
from onlstm_hf.models.dropout import bind_projection
from onlstm_hf.models.modeling_onlstm import ONLSTMForCausalLM, ONLSTMLayerOutput, ONLSTMModel, cumax


class CumaxLSTMConfig(ONLSTMConfig):
    model_type = "cumax_lstm"


class CumaxLSTMLayer(nn.Module):
    def __init__(self, input_size: int, size: int, chunk_size: int, weight_dropout: float):
        super().__init__()
        self.size, self.chunk_size, self.weight_dropout = size, chunk_size, weight_dropout
        self.gate_sizes = [size // chunk_size] * 2 + [size] * 2
        self.input_projection = nn.Linear(input_size, sum(self.gate_sizes))
        self.recurrent_projection = nn.Linear(size, sum(self.gate_sizes))

    def step(self, gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Maps gates and cell state `[B, H]` to hidden state, cell state, and the means of f and i."""
        forget, write, candidate, output = gates.split(self.gate_sizes, dim=-1)
        forget_gate = cumax(forget).repeat_interleave(self.chunk_size, dim=-1)
        input_gate = 1 - cumax(write).repeat_interleave(self.chunk_size, dim=-1)
        cell = forget_gate * cell + input_gate * candidate.tanh()
        return output.sigmoid() * cell.tanh(), cell, forget_gate.mean(dim=-1), input_gate.mean(dim=-1)

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None
    ) -> ONLSTMLayerOutput:
        """`inputs` `[T, B, input_size]`, `hidden` and `cell` `[B, H]`, `mask` `[T, B]` (0: padding) or `None`."""
        recurrent = bind_projection(self.recurrent_projection, inputs, self.weight_dropout, self.training)
        outputs, forget_means, input_means = [], [], []
        for step, gates in enumerate(self.input_projection(inputs)):
            new_hidden, new_cell, forget_mean, input_mean = self.step(gates + recurrent(hidden), cell)
            if mask is not None:  # padding does not change the state
                is_real = mask[step].unsqueeze(-1)
                new_hidden, new_cell = new_hidden.where(is_real, hidden), new_cell.where(is_real, cell)
            hidden, cell = new_hidden, new_cell
            outputs.append(hidden.to(inputs.dtype))
            forget_means.append(forget_mean)
            input_means.append(input_mean)
        forget_distances = 1 - torch.stack(forget_means)
        return ONLSTMLayerOutput(torch.stack(outputs), (outputs[-1], cell), forget_distances, torch.stack(input_means))

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros(batch_size, self.size, dtype=self.recurrent_projection.weight.dtype)
        return zeros, zeros.clone()


class CumaxLSTMModel(ONLSTMModel):
    config_class = CumaxLSTMConfig
    layer_class = CumaxLSTMLayer


class CumaxLSTMForCausalLM(ONLSTMForCausalLM):
    config_class = CumaxLSTMConfig
    model_class = CumaxLSTMModel


AutoConfig.register("cumax_lstm", CumaxLSTMConfig, exist_ok=True)
AutoModelForCausalLM.register(CumaxLSTMConfig, CumaxLSTMForCausalLM, exist_ok=True)
