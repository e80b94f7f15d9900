"""Recurrent baselines: LSTM, GRU and simple recurrent network, regularised as the AWD-LSTM (Merity et al. 2018).

The recurrence itself is that of PyTorch: cuDNN on a GPU, oneDNN for the LSTM on a CPU.
"""

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from ..fast.dropout import drop_connect
from ..fast.projections import floating_dtype, previous_states, show, weight_and_bias
from ..fast.recurrence.scan import scan
from .configuration_rnn import RNNConfig
from .recurrent.awd_lstm import AWDLSTMForCausalLM, AWDLSTMModel
from .recurrent.language_model import RecurrentPreTrainedModel
from .recurrent.pair_classification import PairClassifier, RecurrentForSequencePairClassification
from .recurrent.sequence_classification import RecurrentForSequenceClassification

NUM_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# Opens or closes a gate: large enough for a sigmoid to reach 0 and 1 exactly, small enough for float16.
SATURATION = 1e4


class RNNLayerOutput(NamedTuple):
    """What one layer returns.

    Attributes:
        outputs: `[T, B, H]`, the hidden states.
        cell: `[B, H]`, the last cell state of an LSTM; `None` for the others.
    """

    outputs: torch.Tensor
    cell: torch.Tensor | None


class RNNLayer(nn.Module):
    """One recurrent layer, a `RecurrentLayer`, with drop-connect on its hidden-to-hidden weight.

    The rows of the two projections are the gates as in `torch.nn.LSTM` (input, forget, candidate, output) and
    `torch.nn.GRU` (reset, update, candidate).
    """

    # The first two are PyTorch's own function.
    implementations = ("auto", "reference", "scan")
    implementation = "auto"

    def __init__(self, cell_type: str, input_size: int, size: int, weight_dropout: float):
        super().__init__()
        self.cell_type, self.size, self.weight_dropout = cell_type, size, weight_dropout
        self.input_projection = nn.Linear(input_size, NUM_GATES[cell_type] * size)
        self.recurrent_projection = nn.Linear(size, NUM_GATES[cell_type] * size)

    def forward(self, inputs: torch.Tensor, *arguments: torch.Tensor | None) -> RNNLayerOutput:
        """`inputs` `[T, B, input_size]`, the tensors of the state, `[B, H]` each, and the mask `[T, B]` or `None`."""
        *state, mask = arguments
        output = self._read(inputs, state, mask)
        show(self.input_projection, lambda: inputs)
        show(self.recurrent_projection, lambda: previous_states(state[0], output.outputs))
        return output

    def _read(self, inputs: torch.Tensor, state: list[torch.Tensor], mask: torch.Tensor | None) -> RNNLayerOutput:
        weight, bias = weight_and_bias(self.input_projection, inputs)
        if mask is None or self.implementation == "scan":
            return self._run(inputs, state, weight, bias, mask)

        # The kernels know no mask. Within each row the real tokens are moved to the front, where padding cannot reach
        # them; the hidden state of a position is then that after as many real tokens as have been seen.
        order = mask.int().argsort(dim=0, descending=True, stable=True)
        inputs = inputs.take_along_dim(order.unsqueeze(-1), dim=0)
        if self.cell_type == "lstm":
            # One more input that is 1 at padding closes the input gate and opens the forget gate there.
            padding = (~mask).take_along_dim(order, dim=0).unsqueeze(-1)
            inputs = torch.cat([inputs.where(~padding, 0), padding.to(inputs.dtype)], dim=-1)
            signs = weight.new_tensor([-1.0, 1.0, 0.0, 0.0]).repeat_interleave(self.size)
            weight = torch.cat([weight, SATURATION * signs.unsqueeze(-1)], dim=-1)
        outputs, cell = self._run(inputs, state, weight, bias)
        hiddens = torch.cat([state[0].to(outputs.dtype).unsqueeze(0), outputs])
        return RNNLayerOutput(hiddens.take_along_dim(mask.cumsum(dim=0).unsqueeze(-1), dim=0), cell)

    def _run(
        self,
        inputs: torch.Tensor,
        state: list[torch.Tensor],
        input_weight: torch.Tensor,
        input_bias: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> RNNLayerOutput:
        """The whole sequence, in the precision of autocast where that is on; a mask only with `"scan"`."""
        device_type, dtype = inputs.device.type, input_weight.dtype
        precision = nullcontext()
        if torch.is_autocast_enabled(device_type):
            # The kernels want all tensors in one dtype, and on a GPU autocast would choose float16 for them.
            dtype, precision = torch.get_autocast_dtype(device_type), torch.autocast(device_type, enabled=False)
        recurrent_weight, recurrent_bias = weight_and_bias(self.recurrent_projection, inputs)
        recurrent_weight = drop_connect(recurrent_weight, self.weight_dropout, self.training)
        weights = [input_weight, recurrent_weight, input_bias, recurrent_bias]
        inputs, weights = inputs.to(dtype), [weight.to(dtype) for weight in weights]
        if inputs.is_cuda:
            weights = in_one_buffer(weights)
        state = tuple(tensor.to(dtype) for tensor in state)
        if self.implementation == "scan":
            return self._scan(inputs, state, weights, mask)
        state = [tensor.unsqueeze(0) for tensor in state]
        # The options: with biases, one layer, no dropout between layers, training, one direction, time first.
        options = (True, 1, 0.0, self.training, False, False)
        with precision:
            if self.cell_type == "lstm":
                outputs, _, cell = torch.lstm(inputs, state, weights, *options)
                return RNNLayerOutput(outputs, cell.squeeze(0))
            kernel = torch.gru if self.cell_type == "gru" else torch.rnn_tanh
            outputs, _ = kernel(inputs, *state, weights, *options)
            return RNNLayerOutput(outputs, None)

    def _scan(
        self,
        inputs: torch.Tensor,
        state: tuple[torch.Tensor, ...],
        weights: list[torch.Tensor],
        mask: torch.Tensor | None,
    ) -> RNNLayerOutput:
        """The same step by step, for export, where the kernels are for one batch size and length only."""

        def step(state, entries):
            inputs, mask = entries
            if self.cell_type == "lstm":
                new_state = torch.lstm_cell(inputs, state, *weights)
            else:
                cell = torch.gru_cell if self.cell_type == "gru" else torch.rnn_tanh_cell
                new_state = (cell(inputs, *state, *weights),)
            if mask is not None:
                pairs = zip(new_state, state, strict=True)
                new_state = tuple(torch.where(mask.unsqueeze(-1), new, old) for new, old in pairs)
            return new_state, (new_state[0],)

        (_, *cell), (outputs,) = scan(step, state, (inputs, mask))
        return RNNLayerOutput(outputs, *cell or (None,))

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, ...]:
        """Hidden (and cell) state before the first token: zeros."""
        zeros = torch.zeros(batch_size, self.size, dtype=floating_dtype(self.recurrent_projection))
        return (zeros, zeros.clone()) if self.cell_type == "lstm" else (zeros,)

    @staticmethod
    def last_state(output: RNNLayerOutput) -> tuple[torch.Tensor, ...]:
        """Hidden (and cell) state after the last step."""
        hidden = output.outputs[-1]
        return (hidden,) if output.cell is None else (hidden, output.cell)

    def extra_repr(self) -> str:
        return f"{self.cell_type}, weight_dropout={self.weight_dropout}"


def in_one_buffer(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors one behind the other in memory: cuDNN takes weights like that without a copy and a warning."""
    buffer = torch.cat([tensor.flatten() for tensor in tensors])
    parts = buffer.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


class RNNPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation that all recurrent baselines share."""

    config: RNNConfig
    config_class = RNNConfig
    _no_split_modules = ["RNNLayer"]


class RNNModel(RNNPreTrainedModel, AWDLSTMModel):
    """The embedding and the stack of recurrent layers, without a head."""

    def build_layer(self, input_size: int, size: int) -> RNNLayer:
        return RNNLayer(self.config.cell_type, input_size, size, self.config.weight_dropout)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As Merity et al.: all weights and biases of a layer within the inverse square root of its size."""
        if not isinstance(module, nn.Linear):
            return super()._init_weights(module)
        bound = (module.out_features // NUM_GATES[self.config.cell_type]) ** -0.5
        init.uniform_(module.weight, -bound, bound)
        init.uniform_(module.bias, -bound, bound)


class RNNForCausalLM(RNNPreTrainedModel, AWDLSTMForCausalLM):
    """A recurrent network that predicts the next word. It induces no trees: `parse` says so."""

    model_class = RNNModel
    induces_trees = False

    def parse(self, *args, **kwargs):
        """Raises a `ValueError`: nothing in these networks says where constituents begin and end."""
        raise ValueError(
            f'this model induces no trees: a recurrent network of cell_type "{self.config.cell_type}" has no '
            "syntactic distances; parse with an ON-LSTM or a PRPN"
        )

    syntactic_distances = sentence_distances = parse_layers = parse_by_layer = draw_distances = parse


class RNNForSequencePairClassification(RNNPreTrainedModel, RecurrentForSequencePairClassification):
    """A recurrent network that reads both sequences of a pair, and a classifier that compares what it made of them."""

    def __init__(self, config: RNNConfig):
        super().__init__(config)
        self.model = RNNModel(config)
        self.classifier = PairClassifier(config.layer_sizes[-1], config.num_labels, config.classifier_dropout)
        self.post_init()


# Below the classifier of pairs, as a language model's checkpoint names the last class here of each Auto class.
class RNNForSequenceClassification(RNNPreTrainedModel, RecurrentForSequenceClassification):
    """A recurrent network that reads one sequence, and a linear map that classifies what it made of it."""

    model_class = RNNModel


__all__ = [
    "RNNForCausalLM",
    "RNNForSequenceClassification",
    "RNNForSequencePairClassification",
    "RNNModel",
    "RNNPreTrainedModel",
]
