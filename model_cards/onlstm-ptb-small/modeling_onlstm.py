"""ON-LSTM: an LSTM whose neurons are ordered by how long they remember (Shen, Tan, Sordoni & Courville, ICLR 2019)."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from .configuration_onlstm import ONLSTMConfig
from .dropout import LockedDropout, drop_connect, dropped_words
from .ordered_neurons import OrderedNeuronsOutput, ordered_neurons
from .parsing import ParsingMixin
from .recurrent_state import RecurrentState
from .vocabulary_loss import IGNORED_LABEL, check_vocabulary, next_token_loss, next_token_targets


@dataclass
class ONLSTMModelOutput(ModelOutput):
    r"""
    Output of `ONLSTMModel`.

    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, layer_sizes[-1])`):
            Output of the last layer, after the output dropout.
        state (`RecurrentState`, *optional*, returned when `use_cache=True`):
            Hidden and cell state of every layer after the last real token of every row, to go on from.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned when `output_hidden_states=True`):
            The embedded input, then the output of every layer before dropout, each
            `(batch_size, sequence_length, size)`.
        forget_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            Syntactic distances in [0, 1]: one minus the mean of the master forget gate. 0 at padding.
        input_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            The same, from the master input gate: its mean. 0 at padding.
        raw_last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, layer_sizes[-1])`, *optional*, returned in training mode):
            Output of the last layer before the output dropout, which the temporal activation penalty looks at.
    """  # noqa: E501

    last_hidden_state: torch.FloatTensor | None = None
    state: RecurrentState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    forget_distances: torch.FloatTensor | None = None
    input_distances: torch.FloatTensor | None = None
    raw_last_hidden_state: torch.FloatTensor | None = None


@dataclass
class ONLSTMCausalLMOutput(ModelOutput):
    r"""
    Output of `ONLSTMForCausalLM`.

    Args:
        loss (`torch.FloatTensor` of shape `()`, *optional*, returned when `labels` or `shift_labels` are given):
            Mean cross-entropy in nats; in training mode plus the two activation penalties.
        logits (`torch.FloatTensor` of shape `(batch_size, sequence_length, vocab_size)`):
            Scores of the next token before the softmax.
        state (`RecurrentState`, *optional*, returned when `use_cache=True`):
            Hidden and cell state of every layer after the last real token of every row, to go on from.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned when `output_hidden_states=True`):
            The embedded input, then the output of every layer before dropout, each
            `(batch_size, sequence_length, size)`.
        forget_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            Syntactic distances in [0, 1]: one minus the mean of the master forget gate. 0 at padding.
        input_distances (`torch.FloatTensor` of shape `(num_hidden_layers, batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            The same, from the master input gate: its mean. 0 at padding.
        cross_entropy (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss):
            The loss without the penalties.
        activation_penalty (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss in training mode):
            Alpha times the mean square of the last layer's dropped output (AR of Merity et al. 2018).
        temporal_activation_penalty (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss in training mode):
            Beta times the mean squared change of the last layer's output between steps (TAR of Merity et al. 2018).
    """  # noqa: E501

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    state: RecurrentState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    forget_distances: torch.FloatTensor | None = None
    input_distances: torch.FloatTensor | None = None
    cross_entropy: torch.FloatTensor | None = None
    activation_penalty: torch.FloatTensor | None = None
    temporal_activation_penalty: torch.FloatTensor | None = None


class ONLSTMLayer(nn.Module):
    """One layer of ordered neurons. `ordered_neurons.py` has its equations and the order of the gates' rows.

    Attributes:
        implementation: which path of `ordered_neurons` runs: "auto", "reference" or "fused".
    """

    def __init__(self, input_size: int, size: int, chunk_size: int, weight_dropout: float):
        super().__init__()
        self.size, self.chunk_size, self.weight_dropout = size, chunk_size, weight_dropout
        num_gates = 4 * size + 2 * (size // chunk_size)
        self.input_projection = nn.Linear(input_size, num_gates)
        self.recurrent_projection = nn.Linear(size, num_gates)
        self.implementation = "auto"

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None
    ) -> OrderedNeuronsOutput:
        """`inputs` `[T, B, input_size]`, `hidden` `[B, H]`, `cell` `[B, C, K]`, `mask` `[T, B]` or `None`."""
        bias = self.input_projection.bias + self.recurrent_projection.bias
        return ordered_neurons(
            F.linear(inputs, self.input_projection.weight, bias),
            drop_connect(self.recurrent_projection.weight, self.weight_dropout, self.training),
            hidden,
            cell,
            mask,
            self.implementation,
        )

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden and cell state before the first token: zeros."""
        weight = self.recurrent_projection.weight
        chunks = (batch_size, self.size // self.chunk_size, self.chunk_size)
        return weight.new_zeros(batch_size, self.size), weight.new_zeros(chunks)


class ONLSTMPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation that all ON-LSTM models share."""

    config: ONLSTMConfig
    config_class = ONLSTMConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _no_split_modules = ["ONLSTMLayer"]
    # The recurrence keeps no graph over time that recomputing parts of it could save; `generate` needs to know that
    # the state cannot be rolled back.
    supports_gradient_checkpointing = False
    _is_stateful = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
        elif module is self.get_output_embeddings():
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            init.uniform_(module.weight, -bound, bound)
            init.uniform_(module.bias, -bound, bound)


class ONLSTMModel(ONLSTMPreTrainedModel):
    """The embedding and the stack of ordered-neurons layers, without a head."""

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        input_sizes = [config.embedding_size, *config.layer_sizes[:-1]]
        self.layers = nn.ModuleList(
            ONLSTMLayer(input_size, size, config.chunk_size, config.weight_dropout)
            for input_size, size in zip(input_sizes, config.layer_sizes, strict=True)
        )
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings = value

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        state: RecurrentState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_distances: bool | None = None,
        return_dict: bool | None = None,
        **kwargs,
    ) -> ONLSTMModelOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 1 for real tokens and 0 for padding on either side, which
                leaves the state as it is.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`; no whole words are dropped from it.
            state: where to go on from; zeros when not given.
            use_cache: whether to return the state; `config.use_cache` when not given.
            output_hidden_states: whether to return the output of every layer.
            output_distances: whether to return the syntactic distances of every layer.
            return_dict: whether to return an `ONLSTMModelOutput` (default) or a tuple of what is not `None`.

        Raises:
            ValueError: if the inputs are missing, empty, outside the vocabulary, or do not fit together.
        """
        self._check_inputs(input_ids, inputs_embeds)
        use_cache = self.config.use_cache if use_cache is None else use_cache
        return_dict = self.config.return_dict if return_dict is None else return_dict
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states

        if inputs_embeds is None:
            inputs_embeds = dropped_words(self.embeddings, input_ids, self.config.embedding_dropout, self.training)
        batch_size, length = inputs_embeds.shape[:2]
        if length == 0:
            raise ValueError("the input is empty: a sequence needs at least one token")
        mask = self._time_first_mask(attention_mask, batch_size, length)
        state = self._initial_state(state, batch_size, inputs_embeds)

        hidden_states = [inputs_embeds.transpose(0, 1)]
        forget_distances, input_distances, new_state = [], [], []
        inputs = self.input_dropout(hidden_states[0])
        for layer, layer_state in zip(self.layers, state.layers, strict=True):
            if hidden_states[1:]:
                inputs = self.hidden_dropout(hidden_states[-1])
            output = layer(inputs, *layer_state, mask)
            hidden_states.append(output.outputs)
            new_state.append((output.outputs[-1], output.cell))
            forget_distances.append(output.forget_distances)
            input_distances.append(output.input_distances)
        raw_output = hidden_states[-1]
        last_hidden_state = self.output_dropout(raw_output)

        output = ONLSTMModelOutput(
            last_hidden_state=last_hidden_state.transpose(0, 1),
            state=RecurrentState(tuple(new_state)) if use_cache else None,
            hidden_states=tuple(h.transpose(0, 1) for h in hidden_states) if output_hidden_states else None,
            forget_distances=self._batch_first_distances(forget_distances, mask) if output_distances else None,
            input_distances=self._batch_first_distances(input_distances, mask) if output_distances else None,
            raw_last_hidden_state=raw_output.transpose(0, 1) if self.training else None,
        )
        return output if return_dict else output.to_tuple()

    def _check_inputs(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            if input_ids.dim() != 2:
                raise ValueError(f"input_ids must be [batch_size, sequence_length], not {list(input_ids.shape)}")
            check_vocabulary("input_ids", input_ids, self.embeddings.num_embeddings)
        elif inputs_embeds.dim() != 3 or inputs_embeds.shape[-1] != self.embeddings.embedding_dim:
            raise ValueError(
                f"inputs_embeds must be [batch_size, sequence_length, {self.embeddings.embedding_dim}], "
                f"not {list(inputs_embeds.shape)}"
            )

    @staticmethod
    def _time_first_mask(attention_mask: torch.Tensor | None, batch_size: int, length: int) -> torch.Tensor | None:
        if attention_mask is None:
            return None
        if list(attention_mask.shape) != [batch_size, length]:
            raise ValueError(
                f"attention_mask must have the shape of the input, {[batch_size, length]}, "
                f"not {list(attention_mask.shape)}"
            )
        return attention_mask.bool().t()

    def _initial_state(
        self, state: RecurrentState | None, batch_size: int, inputs_embeds: torch.Tensor
    ) -> RecurrentState:
        zeros = RecurrentState(tuple(layer.initial_state(batch_size) for layer in self.layers))
        if state is None:
            return zeros
        expected, given = ([[tuple(t.shape) for t in layer] for layer in s.layers] for s in (zeros, state))
        if expected != given:
            raise ValueError(
                f"the state does not fit this model and batch: expected tensors of shapes {expected}, got {given}"
            )
        return state.to(inputs_embeds.device)

    @staticmethod
    def _batch_first_distances(distances: list[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
        distances = torch.stack(distances)
        if mask is not None:
            distances = distances * mask
        return distances.transpose(1, 2)


class ONLSTMForCausalLM(ONLSTMPreTrainedModel, ParsingMixin, GenerationMixin):
    """An ON-LSTM that predicts the next word, and shows the constituency tree that it found on the way."""

    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.model = ONLSTMModel(config)
        self.lm_head = nn.Linear(config.layer_sizes[-1], config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        state: RecurrentState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_distances: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> ONLSTMCausalLMOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 1 for real tokens and 0 for padding on either side, which
                leaves the state as it is.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`; no whole words are dropped from it.
            labels: `(batch_size, sequence_length)`, usually `input_ids` itself: they are shifted here. -100 is
                ignored, and so is what follows padding.
            state: where to go on from; zeros when not given.
            use_cache: whether to return the state; `config.use_cache` when not given.
            output_hidden_states: whether to return the output of every layer.
            output_distances: whether to return the syntactic distances of every layer.
            return_dict: whether to return an `ONLSTMCausalLMOutput` (default) or a tuple of what is not `None`.
            logits_to_keep: compute the logits of the last that many positions only (0: of all).
            num_items_in_batch: divide the summed loss by this instead of the number of labels here (`Trainer` gives it
                when it accumulates gradients).
            shift_labels: instead of `labels`, labels that are shifted already: entry `t` is the token that should
                follow token `t`. For streams of text, where the target of a chunk's last token is the next chunk's
                first.

        Raises:
            ValueError: if the inputs are missing, empty, outside the vocabulary, or do not fit together.
        """
        # Not in the signature, because `Trainer` evaluates only batches that have every argument named "label".
        shift_labels = kwargs.get("shift_labels")
        return_dict = self.config.return_dict if return_dict is None else return_dict
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            state=state,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            output_distances=output_distances,
            return_dict=True,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])

        loss = cross_entropy = activation_penalty = temporal_activation_penalty = None
        if labels is not None or shift_labels is not None:
            targets = next_token_targets(labels, shift_labels, attention_mask, logits.shape[:2])
            cross_entropy = next_token_loss(logits, targets, num_items_in_batch)
            loss = cross_entropy
            if self.training:
                share = 1.0
                if num_items_in_batch is not None:
                    share = (targets != IGNORED_LABEL).sum() / num_items_in_batch
                activation_penalty, temporal_activation_penalty = (
                    penalty * share for penalty in self._activation_penalties(outputs, attention_mask)
                )
                loss = loss + activation_penalty + temporal_activation_penalty

        output = ONLSTMCausalLMOutput(
            loss=loss,
            logits=logits,
            state=outputs.state,
            hidden_states=outputs.hidden_states,
            forget_distances=outputs.forget_distances,
            input_distances=outputs.input_distances,
            cross_entropy=cross_entropy,
            activation_penalty=activation_penalty,
            temporal_activation_penalty=temporal_activation_penalty,
        )
        return output if return_dict else output.to_tuple()

    def _activation_penalties(
        self, outputs: ONLSTMModelOutput, attention_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """AR and TAR of Merity et al. (2018), means over the units of real tokens (and pairs of real neighbours)."""
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
        return config.activation_regularization * activation, config.temporal_activation_regularization * change

    def syntactic_distances(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        state: RecurrentState | None = None,
        layer: int | None = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """What `parse` builds trees from: the forget distances of one layer.

        Args:
            input_ids: `(batch_size, sequence_length)`.
            attention_mask: the same shape, 0 at padding.
            state: where to go on from.
            layer: which layer, counted from 0; `config.parse_layer` when not given.

        Returns:
            The distances `(batch_size, sequence_length)`, and the state to go on from.

        Raises:
            ValueError: if there is no such layer.
        """
        layer = self.config.parse_layer if layer is None else layer
        if not 0 <= layer < self.config.num_hidden_layers:
            raise ValueError(
                f"layer {layer} does not exist: this model's layers are 0 to {self.config.num_hidden_layers - 1}"
            )
        outputs = self.model(
            input_ids, attention_mask=attention_mask, state=state, use_cache=True, output_distances=True
        )
        return outputs.forget_distances[layer], outputs.state

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    # `generate` looks for the name `inputs_embeds` here to know that it may be given.
    def prepare_inputs_for_generation(self, input_ids, inputs_embeds=None, **kwargs):
        """The inputs of one call of `generate`: the tokens that the state has not seen, and their part of the mask."""
        inputs = super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, **kwargs)
        tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
        if inputs.get("attention_mask") is not None:
            inputs["attention_mask"] = inputs["attention_mask"][:, -tokens.shape[1] :]
        return inputs

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        if expand_size > 1 and model_kwargs.get("state") is not None:
            model_kwargs["state"] = model_kwargs["state"].repeat_interleave(expand_size)
        return super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)


__all__ = ["ONLSTMForCausalLM", "ONLSTMModel", "ONLSTMPreTrainedModel"]
