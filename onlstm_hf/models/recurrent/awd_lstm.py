"""The AWD-LSTM of Merity, Keskar & Socher (2018) but for its layers: dropouts, the stack, and activation penalties."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import can_return_tuple

from ...fast.dropout import LockedDropout, dropped_words
from .configuration_awd_lstm import AWDLSTMConfig
from .language_model import RecurrentCausalLMOutput, RecurrentForCausalLM, RecurrentModel, RecurrentModelOutput
from .layer import LayerOutput, RecurrentLayer
from .state import RecurrentState


@dataclass
class AWDLSTMModelOutput(RecurrentModelOutput):
    r"""
    Output of an `AWDLSTMModel`.

    Args:
        raw_last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, layer_sizes[-1])`, *optional*, returned in training mode):
            Output of the last layer before the output dropout, which the temporal activation penalty looks at.

    The other fields are those of `RecurrentModelOutput`.
    """  # noqa: E501

    raw_last_hidden_state: torch.FloatTensor | None = None


@dataclass
class AWDLSTMCausalLMOutput(RecurrentCausalLMOutput):
    r"""
    Output of an `AWDLSTMForCausalLM`.

    Args:
        activation_penalty (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss in training mode):
            Alpha times the mean square of the last layer's dropped output (AR of Merity et al. 2018).
        temporal_activation_penalty (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss in training mode):
            Beta times the mean squared change of the last layer's output between steps (TAR of Merity et al. 2018).

    The other fields are those of `RecurrentCausalLMOutput`.
    """  # noqa: E501

    activation_penalty: torch.FloatTensor | None = None
    temporal_activation_penalty: torch.FloatTensor | None = None


class AWDLSTMModel(RecurrentModel):
    """The embedding and a stack of recurrent layers with locked dropout around them, without a head.

    A subclass says what a layer is, in `build_layer`.
    """

    output_class: type[AWDLSTMModelOutput] = AWDLSTMModelOutput

    def __init__(self, config: AWDLSTMConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        input_sizes = [config.embedding_size, *config.layer_sizes[:-1]]
        self.layers = nn.ModuleList(map(self.build_layer, input_sizes, config.layer_sizes))
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.post_init()

    def build_layer(self, input_size: int, size: int) -> RecurrentLayer:
        """A module that keeps the contract of layers."""
        raise NotImplementedError

    def initial_state(self, batch_size: int) -> RecurrentState:
        return RecurrentState(tuple(layer.initial_state(batch_size) for layer in self.layers))

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        state: RecurrentState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        num_layers: int | None = None,
        **kwargs,
    ) -> AWDLSTMModelOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 1 for real tokens and 0 for padding on either side, which
                leaves the state as it is.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`; no whole words are dropped from it.
            state: where to go on from; zeros when not given.
            use_cache: whether to return the state; `config.use_cache` when not given.
            output_hidden_states: whether to return the output of every layer.
            num_layers: run only that many layers, from the lowest on; the state of the others stays as it is.
            kwargs: what `further_outputs` takes, and `return_dict`: whether to return the `output_class` (default) or
                a tuple of what is not `None`.

        Raises:
            ValueError: if the inputs are missing, empty, outside the vocabulary, or do not fit together, or an
                argument is unknown.
        """
        further = self.further_options(kwargs)
        self.check_inputs(input_ids, inputs_embeds)
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states

        if inputs_embeds is None:
            inputs_embeds = dropped_words(self.embeddings, input_ids, self.config.embedding_dropout, self.training)
        batch_size, length = inputs_embeds.shape[:2]
        mask = self.time_first_mask(attention_mask, batch_size, length, inputs_embeds.device)
        state = self.check_state(state, batch_size, inputs_embeds.device)

        # Each layer reads the very tensor that is returned, so that one can ask for its gradient.
        hidden_states = [inputs_embeds]
        layer_outputs, new_state = [], []
        num_layers = len(self.layers) if num_layers is None else num_layers
        for layer, layer_state in zip(self.layers[:num_layers], state.layers[:num_layers], strict=True):
            dropout = self.hidden_dropout if layer_outputs else self.input_dropout
            output = layer(dropout(hidden_states[-1].transpose(0, 1)), *layer_state, mask)
            hidden_states.append(output.outputs.transpose(0, 1))
            layer_outputs.append(output)
            new_state.append(layer.last_state(output))
        raw_output = hidden_states[-1]

        return self.output_class(
            last_hidden_state=self.output_dropout(raw_output.transpose(0, 1)).transpose(0, 1),
            state=RecurrentState((*new_state, *state.layers[num_layers:])) if use_cache else None,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            raw_last_hidden_state=raw_output if self.training else None,
            **self.further_outputs(layer_outputs, mask, **further),
        )

    def further_outputs(
        self, layer_outputs: list[LayerOutput], mask: torch.Tensor | None, **further_arguments
    ) -> dict[str, torch.Tensor]:
        """Fields of the `output_class` that only this kind of layer has, from what each layer returned; none here.

        A subclass that takes arguments for it names them in `further_arguments`.
        """
        return {}


class AWDLSTMForCausalLM(RecurrentForCausalLM):
    """The stack with the head, and the two activation penalties in the training loss."""

    output_class: type[AWDLSTMCausalLMOutput] = AWDLSTMCausalLMOutput

    def penalties(self, outputs: AWDLSTMModelOutput, attention_mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """AR and TAR of Merity et al. (2018), means over the units of real tokens (and pairs of real neighbours)."""
        if not self.training:
            return {}
        dtype = torch.promote_types(outputs.last_hidden_state.dtype, torch.float32)
        activations = outputs.last_hidden_state.to(dtype).square()
        raw = outputs.raw_last_hidden_state.to(dtype)
        changes = (raw[:, 1:] - raw[:, :-1]).square()
        if attention_mask is None:
            activation = activations.mean()
            change = changes.mean() if changes.numel() else changes.sum()
        else:
            real = attention_mask.unsqueeze(-1).to(activations.dtype)
            pairs = real[:, 1:] * real[:, :-1]
            activation = (activations * real).sum() / (real.sum() * activations.shape[-1]).clamp(min=1)
            change = (changes * pairs).sum() / (pairs.sum() * changes.shape[-1]).clamp(min=1)
        config = self.config
        return {
            "activation_penalty": config.activation_regularization * activation,
            "temporal_activation_penalty": config.temporal_activation_regularization * change,
        }
