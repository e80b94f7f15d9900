"""ON-LSTM: an LSTM whose neurons are ordered by how long they remember (Shen, Tan, Sordoni & Courville, ICLR 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ..fast.dropout import kept_connections
from ..fast.onlstm.operator import IMPLEMENTATIONS, OrderedNeuronsOutput, ordered_neurons
from ..fast.projections import affine, floating_dtype, previous_states, show, weight_and_bias
from ..parsing.mixin import ParsingMixin
from .configuration_onlstm import ONLSTMConfig
from .recurrent.awd_lstm import AWDLSTMCausalLMOutput, AWDLSTMForCausalLM, AWDLSTMModel, AWDLSTMModelOutput
from .recurrent.language_model import RecurrentPreTrainedModel
from .recurrent.pair_classification import PairClassifier, RecurrentForSequencePairClassification
from .recurrent.sequence_classification import RecurrentForSequenceClassification
from .recurrent.state import RecurrentState


@dataclass
class ONLSTMModelOutput(AWDLSTMModelOutput):
    r"""
    Output of `ONLSTMModel`.

    Args:
        forget_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            Syntactic distances in [0, 1]: one minus the mean of the master forget gate. 0 at padding.
        input_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            The same, from the master input gate: its mean. 0 at padding.

    The other fields are those of `AWDLSTMModelOutput`.
    """  # noqa: E501

    forget_distances: torch.FloatTensor | None = None
    input_distances: torch.FloatTensor | None = None


@dataclass
class ONLSTMCausalLMOutput(AWDLSTMCausalLMOutput):
    r"""
    Output of `ONLSTMForCausalLM`.

    Args:
        forget_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            Syntactic distances in [0, 1]: one minus the mean of the master forget gate. 0 at padding.
        input_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            The same, from the master input gate: its mean. 0 at padding.

    The other fields are those of `AWDLSTMCausalLMOutput`.
    """  # noqa: E501

    forget_distances: torch.FloatTensor | None = None
    input_distances: torch.FloatTensor | None = None


class ONLSTMLayer(nn.Module):
    """One layer of ordered neurons, a `RecurrentLayer`. Its equations are in `fast/onlstm/equations.py`, and the
    order of the gates' rows in `fast/onlstm/operator.py`.

    Attributes:
        implementation: which path of `ordered_neurons` runs, one of its `IMPLEMENTATIONS`.
    """

    implementations = IMPLEMENTATIONS
    implementation = "auto"

    def __init__(self, input_size: int, size: int, chunk_size: int, weight_dropout: float):
        super().__init__()
        self.size, self.chunk_size, self.weight_dropout = size, chunk_size, weight_dropout
        num_gates = 4 * size + 2 * (size // chunk_size)
        self.input_projection = nn.Linear(input_size, num_gates)
        self.recurrent_projection = nn.Linear(size, num_gates)

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None
    ) -> OrderedNeuronsOutput:
        """`inputs` `[T, B, input_size]`, `hidden` `[B, H]`, `cell` `[B, C, K]`, `mask` `[T, B]` or `None`."""
        weight, recurrent_bias = weight_and_bias(self.recurrent_projection, inputs)
        # Drop-connect (see dropout.py): the recurrence folds mask and factor into the weight as it reads it.
        mask_of_weight, factor = None, 1 - self.weight_dropout
        if self.training:
            factor = 1.0
            if self.weight_dropout > 0:
                mask_of_weight = kept_connections(weight, self.weight_dropout)
        output = ordered_neurons(
            affine(self.input_projection, inputs, recurrent_bias, self.implementation),
            weight,
            hidden,
            cell,
            mask,
            self.implementation,
            recurrent_scale=factor,
            recurrent_mask=mask_of_weight,
        )
        show(self.recurrent_projection, lambda: previous_states(hidden, output.outputs))
        return output

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden and cell state before the first token: zeros."""
        dtype, num_chunks = floating_dtype(self.recurrent_projection), self.size // self.chunk_size
        hidden = torch.zeros(batch_size, self.size, dtype=dtype)
        return hidden, hidden.new_zeros(batch_size, num_chunks, self.chunk_size)

    @staticmethod
    def last_state(output: OrderedNeuronsOutput) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden and cell state after the last step."""
        return output.outputs[-1], output.cell


class ONLSTMPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation that all ON-LSTM models share."""

    config: ONLSTMConfig
    config_class = ONLSTMConfig
    _no_split_modules = ["ONLSTMLayer"]


class ONLSTMModel(ONLSTMPreTrainedModel, AWDLSTMModel):
    """The embedding and the stack of ordered-neurons layers, without a head.

    Its `forward` has one argument more than `AWDLSTMModel`: with `output_distances=True` the syntactic distances of
    every layer are returned.
    """

    output_class = ONLSTMModelOutput
    further_arguments = ("output_distances",)

    def build_layer(self, input_size: int, size: int) -> ONLSTMLayer:
        return ONLSTMLayer(input_size, size, self.config.chunk_size, self.config.weight_dropout)

    def further_outputs(
        self,
        layer_outputs: list[OrderedNeuronsOutput],
        mask: torch.Tensor | None,
        output_distances: bool | None = None,
    ) -> dict[str, torch.Tensor]:
        """The distances of every layer, `[L, B, T]`, if asked for."""
        if not output_distances:
            return {}
        forget_distances = torch.stack([output.forget_distances for output in layer_outputs])
        input_distances = torch.stack([output.input_distances for output in layer_outputs])
        if mask is not None:
            forget_distances, input_distances = forget_distances * mask, input_distances * mask
        return {
            "forget_distances": forget_distances.transpose(1, 2),
            "input_distances": input_distances.transpose(1, 2),
        }


class ONLSTMForCausalLM(ONLSTMPreTrainedModel, ParsingMixin, AWDLSTMForCausalLM):
    """An ON-LSTM that predicts the next word, and shows the constituency tree that it found on the way.

    Its `forward` also takes `output_distances`, as `ONLSTMModel` does.
    """

    output_class = ONLSTMCausalLMOutput
    model_class = ONLSTMModel

    def syntactic_distances(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        state: RecurrentState | None = None,
        layer: int | None | Sequence[int | None] = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """What `parse` builds trees from: the forget distances of one layer, or of several.

        Args:
            input_ids: `(batch_size, sequence_length)`.
            attention_mask: the same shape, 0 at padding.
            state: where to go on from.
            layer: which layer, counted from 0, or a sequence of them; `config.parse_layer` for `None`.

        Returns:
            The distances, `(batch_size, sequence_length)` of one layer and `(layers, batch_size, sequence_length)` of
            several, and the state to go on from. The layers above are not run, and their state stays as it was.

        Raises:
            ValueError: if there is no such layer.
        """
        is_one = not isinstance(layer, Sequence)
        layers = [self.config.parse_layer if one is None else one for one in ([layer] if is_one else layer)]
        for one in layers:
            if not 0 <= one < self.config.num_hidden_layers:
                raise ValueError(
                    f"layer {one} does not exist: this model's layers are 0 to {self.config.num_hidden_layers - 1}"
                )
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            state=state,
            use_cache=True,
            output_distances=True,
            num_layers=max(layers) + 1,
        )
        return outputs.forget_distances[layers[0] if is_one else layers], outputs.state

    @staticmethod
    def distances_by_layer(output: ONLSTMCausalLMOutput) -> torch.Tensor:
        """What trees are built from in an output with `output_distances=True`: `(layers, batch_size, length)`."""
        return output.forget_distances


class ONLSTMForSequencePairClassification(ONLSTMPreTrainedModel, RecurrentForSequencePairClassification):
    """An ON-LSTM that reads both sequences of a pair, and a classifier that compares what it made of them."""

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.model = ONLSTMModel(config)
        self.classifier = PairClassifier(config.layer_sizes[-1], config.num_labels, config.classifier_dropout)
        self.post_init()


# Below the classifier of pairs, as a language model's checkpoint names the last class here of each Auto class.
class ONLSTMForSequenceClassification(ONLSTMPreTrainedModel, RecurrentForSequenceClassification):
    """An ON-LSTM that reads one sequence, and a linear map that classifies what it made of it."""

    model_class = ONLSTMModel


__all__ = [
    "ONLSTMForCausalLM",
    "ONLSTMForSequenceClassification",
    "ONLSTMForSequencePairClassification",
    "ONLSTMModel",
    "ONLSTMPreTrainedModel",
]
