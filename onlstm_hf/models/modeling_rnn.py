"""PyTorch LSTM, GRU and simple recurrent network, regularised as the AWD-LSTM (Merity, Keskar & Socher 2018).

They are the baselines of the ON-LSTM, from which only the cell differs. `"auto"` runs the kernels of PyTorch (cuDNN on
a GPU, oneDNN for the LSTM on a CPU).
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_rnn import RNNConfig
from .dropout import LockedDropout, activation_penalties, bind_projection, drop_connect, dropped_words
from .heads import (
    LanguageModelHead,
    PairClassifier,
    SequenceClassifier,
    SequencePairClassifier,
    check_single_sequences,
    class_loss,
    encode_by_length,
    kept_positions,
    stacked_sides,
)
from .state import (
    LOOPS,
    RecurrentGenerationMixin,
    RecurrentPreTrainedModel,
    RecurrentState,
    check_inputs,
    check_state,
    is_plain,
    loop,
    real_tokens,
    state_dtype,
)

# Opens or closes a gate: large enough for a sigmoid to reach 0 and 1 exactly, small enough for float16.
SATURATION = 1e4


# The equations. They run with `--implementation reference`, and where PyTorch's kernels cannot run.


def lstm_step(
    input_gates: torch.Tensor, recurrent_gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of an LSTM; the gates `[B, 4 * H]` are input, forget, candidate and output."""
    input_gate, forget_gate, candidate, output_gate = (input_gates + recurrent_gates).chunk(4, dim=-1)
    cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
    return output_gate.sigmoid() * cell.tanh(), cell


def gru_step(
    input_gates: torch.Tensor, recurrent_gates: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """One step of a GRU; the gates `[B, 3 * H]` are reset, update and candidate."""
    (input_reset, input_update, input_candidate), (reset, update, candidate) = (
        gates.chunk(3, dim=-1) for gates in (input_gates, recurrent_gates)
    )
    update_gate = (input_update + update).sigmoid()
    candidate = (input_candidate + (input_reset + reset).sigmoid() * candidate).tanh()
    return ((1 - update_gate) * candidate + update_gate * hidden,)


def rnn_step(
    input_gates: torch.Tensor, recurrent_gates: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """One step of the simple recurrent network of Elman (1990)."""
    return ((input_gates + recurrent_gates).tanh(),)


# For each cell: its step, its number of gates, and PyTorch's kernel for a whole sequence.
CELLS = {"lstm": (lstm_step, 4, torch.lstm), "gru": (gru_step, 3, torch.gru), "rnn": (rnn_step, 1, torch.rnn_tanh)}


class RNNLayerOutput(NamedTuple):
    """Output of one layer.

    Attributes:
        outputs: `[T, B, H]`, the hidden states. Padding repeats the state before it.
        state: the last hidden state `[B, H]`, and for an LSTM the last cell state `[B, H]`.
    """

    outputs: torch.Tensor
    state: tuple[torch.Tensor, ...]


class RNNLayer(nn.Module):
    """One recurrent layer, with drop-connect on its hidden-to-hidden weight.

    The rows of both projections are the gates in the order of `torch.nn.LSTM` and `torch.nn.GRU`. With `"auto"`
    PyTorch's kernels run if both projections are plain (`is_plain`).
    """

    implementations = ("auto", *LOOPS)
    implementation = "auto"

    def __init__(self, cell_type: str, input_size: int, size: int, weight_dropout: float):
        super().__init__()
        self.cell_type, self.size, self.weight_dropout = cell_type, size, weight_dropout
        _, num_gates, _ = CELLS[cell_type]
        self.input_projection = nn.Linear(input_size, num_gates * size)
        self.recurrent_projection = nn.Linear(size, num_gates * size)

    def forward(self, inputs: torch.Tensor, *arguments: torch.Tensor | None) -> RNNLayerOutput:
        """`inputs` `[T, B, input_size]`, the tensors of the state, `[B, H]` each, and the mask `[T, B]` or `None`."""
        *state, mask = arguments
        if self.implementation == "auto" and is_plain(self.input_projection, self.recurrent_projection):
            return self.run_kernel(inputs, state, mask)
        cell_step, _, _ = CELLS[self.cell_type]
        dtype, run = state_dtype(inputs), LOOPS.get(self.implementation, loop)
        recurrent = bind_projection(self.recurrent_projection, inputs, self.weight_dropout, self.training)

        def step(state, entries):
            gates, mask = entries
            new_state = cell_step(gates, recurrent(state[0]), *state)
            if mask is not None:
                pairs = zip(new_state, state, strict=True)
                new_state = tuple(torch.where(mask.unsqueeze(-1), new, old) for new, old in pairs)
            return new_state, (new_state[0],)

        input_gates = self.input_projection(inputs).to(dtype)
        state, (outputs,) = run(step, tuple(tensor.to(dtype) for tensor in state), (input_gates, mask))
        outputs = outputs.to(inputs.dtype)
        return RNNLayerOutput(outputs, (outputs[-1], *state[1:]))

    def run_kernel(self, inputs: torch.Tensor, state: list[torch.Tensor], mask: torch.Tensor | None) -> RNNLayerOutput:
        """Runs the recurrence by PyTorch's kernels, which take no mask.

        Each row's real tokens are moved to the front, where padding cannot affect them. Each position then gets the
        hidden state after the real tokens up to that position.
        """
        weight, bias = self.input_projection.weight, self.input_projection.bias
        if mask is None:
            return self.call_kernel(inputs, state, weight, bias)
        order = mask.int().argsort(dim=0, descending=True, stable=True)
        inputs = inputs.take_along_dim(order.unsqueeze(-1), dim=0)
        if self.cell_type == "lstm":
            # An extra input, 1 at padding, closes the input gate and opens the forget gate there.
            padding = (~mask).take_along_dim(order, dim=0).unsqueeze(-1)
            inputs = torch.cat([inputs.where(~padding, 0), padding.to(inputs.dtype)], dim=-1)
            signs = weight.new_tensor([-1.0, 1.0, 0.0, 0.0]).repeat_interleave(self.size)
            weight = torch.cat([weight, SATURATION * signs.unsqueeze(-1)], dim=-1)
        outputs, (_, *cell) = self.call_kernel(inputs, state, weight, bias)
        hiddens = torch.cat([state[0].to(outputs.dtype).unsqueeze(0), outputs])
        outputs = hiddens.take_along_dim(mask.cumsum(dim=0).unsqueeze(-1), dim=0)
        return RNNLayerOutput(outputs, (outputs[-1], *cell))

    def call_kernel(
        self, inputs: torch.Tensor, state: list[torch.Tensor], input_weight: torch.Tensor, input_bias: torch.Tensor
    ) -> RNNLayerOutput:
        """Runs a sequence without padding, in the precision of autocast if that is on."""
        device_type, dtype = inputs.device.type, input_weight.dtype
        precision = nullcontext()
        if torch.is_autocast_enabled(device_type):
            # The kernels want all tensors in one dtype, and on a GPU autocast would choose float16 for them.
            dtype, precision = torch.get_autocast_dtype(device_type), torch.autocast(device_type, enabled=False)
        recurrent_weight = drop_connect(self.recurrent_projection.weight, self.weight_dropout, self.training)
        weights = [input_weight, recurrent_weight, input_bias, self.recurrent_projection.bias]
        inputs, weights = inputs.to(dtype), [weight.to(dtype) for weight in weights]
        if inputs.is_cuda:
            weights = in_one_buffer(weights)
        state = [tensor.to(dtype).unsqueeze(0) for tensor in state]
        _, _, kernel = CELLS[self.cell_type]
        # With biases, one layer, no dropout between layers, training, one direction, time first.
        options = (True, 1, 0.0, self.training, False, False)
        with precision:
            outputs, _, *cell = kernel(inputs, *([state] if len(state) > 1 else state), weights, *options)
        # The compiler of torch 2.9 gives squeeze the wrong shape.
        return RNNLayerOutput(outputs, (outputs[-1], *(tensor.reshape(outputs.shape[1:]) for tensor in cell)))

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, ...]:
        """Returns the hidden (and cell) state before the first token: zeros, on the default device."""
        dtype = getattr(self.recurrent_projection.weight, "dtype", torch.float32)  # packed weights have none
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        zeros = torch.zeros(batch_size, self.size, dtype=dtype)
        return (zeros, zeros.clone()) if self.cell_type == "lstm" else (zeros,)


def in_one_buffer(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Moves tensors into one buffer: cuDNN then takes weights without a copy and a warning."""
    buffer = torch.cat([tensor.flatten() for tensor in tensors])
    parts = buffer.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


# The model


@dataclass
class RNNModelOutput(ModelOutput):
    r"""
    Output of `RNNModel`, as for the ON-LSTM. Sequences are `(batch_size, sequence_length, size)`.

    Args:
        last_hidden_state: output of the last layer, after the output dropout; the input of the head.
        state (returned when `use_cache=True`): hidden and cell state of every layer after the last real token.
        hidden_states (returned when `output_hidden_states=True`): the embedded input, then the output of every layer
            before dropout.
        raw_last_hidden_state (returned in training mode): output of the last layer before the output dropout.
    """

    last_hidden_state: torch.FloatTensor | None = None
    state: RecurrentState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    raw_last_hidden_state: torch.FloatTensor | None = None


@dataclass
class RNNCausalLMOutput(ModelOutput):
    r"""
    Output of `RNNForCausalLM`, as for the ON-LSTM.

    Args:
        loss: mean cross-entropy in nats, in training mode plus both penalties.
        logits (returned unless `skip_logits=True`): `(batch_size, sequence_length, vocab_size)`, scores of the next
            token before the softmax; with a mixture of softmaxes, log probabilities.
        state, hidden_states: see `RNNModelOutput`.
        cross_entropy: the loss without the penalties.
        activation_penalty, temporal_activation_penalty (returned in training mode): AR and TAR, times their weights.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    state: RecurrentState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    cross_entropy: torch.FloatTensor | None = None
    activation_penalty: torch.FloatTensor | None = None
    temporal_activation_penalty: torch.FloatTensor | None = None


class RNNPreTrainedModel(RecurrentPreTrainedModel):
    """Base class of all recurrent baselines."""

    config: RNNConfig
    _no_split_modules = ["RNNLayer"]


class RNNModel(RNNPreTrainedModel):
    """The embedding and the stack of layers with locked dropout around them, without a head."""

    auto_class_name = "AutoModel"

    def __init__(self, config: RNNConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        input_sizes = [config.embedding_size, *config.layer_sizes[:-1]]
        self.layers = nn.ModuleList(
            RNNLayer(config.cell_type, input_size, size, config.weight_dropout)
            for input_size, size in zip(input_sizes, config.layer_sizes, strict=True)
        )
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.post_init()

    def initial_state(self, batch_size: int) -> RecurrentState:
        """Returns the state before the first token, on the default device."""
        return RecurrentState(tuple(layer.initial_state(batch_size) for layer in self.layers))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draws weights and biases uniformly within the inverse square root of the layer's size (Merity et al.)."""
        if not isinstance(module, nn.Linear):
            return super()._init_weights(module)
        _, num_gates, _ = CELLS[self.config.cell_type]
        bound = (module.out_features // num_gates) ** -0.5
        init.uniform_(module.weight, -bound, bound)
        init.uniform_(module.bias, -bound, bound)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        state: RecurrentState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> RNNModelOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 0 at padding on either side, which keeps the state.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`; word dropout is not applied.
            state: the state before the first token; zeros by default.
            use_cache, output_hidden_states: whether to return the state, and the output of every layer.
            kwargs: `return_dict`, whether to return an `RNNModelOutput` (default) or a tuple without `None`s.

        Raises:
            ValueError: if the inputs are invalid or do not fit together, or an argument is unknown.
        """
        check_inputs(self, input_ids, inputs_embeds, kwargs)
        config = self.config
        use_cache = config.use_cache if use_cache is None else use_cache
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states

        if inputs_embeds is None:
            inputs_embeds = dropped_words(self.embeddings, input_ids, config.embedding_dropout, self.training)
        real = real_tokens(attention_mask, inputs_embeds)
        mask = None if real is None else real.t()
        state = check_state(state, self.initial_state(inputs_embeds.shape[0]), inputs_embeds.device)

        # Each layer reads the returned tensor itself, so that users can ask for its gradient.
        hidden_states, layer_outputs = [inputs_embeds], []
        for layer, layer_state in zip(self.layers, state.layers, strict=True):
            dropout = self.hidden_dropout if layer_outputs else self.input_dropout
            output = layer(dropout(hidden_states[-1].transpose(0, 1)), *layer_state, mask)
            hidden_states.append(output.outputs.transpose(0, 1))
            layer_outputs.append(output)
        raw_output = hidden_states[-1]

        return RNNModelOutput(
            last_hidden_state=self.output_dropout(raw_output.transpose(0, 1)).transpose(0, 1),
            state=RecurrentState(tuple(output.state for output in layer_outputs)) if use_cache else None,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            raw_last_hidden_state=raw_output if self.training else None,
        )


# The heads


class RNNForCausalLM(LanguageModelHead, RNNPreTrainedModel, RecurrentGenerationMixin):
    """A recurrent language model. It induces no trees: `parse` raises an error."""

    def __init__(self, config: RNNConfig):
        super().__init__(config)
        self.model = RNNModel(config)
        self.build_head(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        state: RecurrentState | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        skip_logits: bool = False,
        **kwargs,
    ) -> RNNCausalLMOutput | tuple:
        """Takes the arguments of `LanguageModelHead`, and those of `RNNModel`."""
        # Not in the signature: `Trainer` would evaluate only batches that have every argument named like "label".
        shift_labels = kwargs.pop("shift_labels", None)
        outputs = self.model(input_ids, attention_mask, inputs_embeds, state, return_dict=True, **kwargs)
        hidden_states = outputs.last_hidden_state
        logits, targets, cross_entropy, num_items = self.predict(
            hidden_states, labels, shift_labels, attention_mask, logits_to_keep, num_items_in_batch, skip_logits
        )
        loss, penalties = cross_entropy, (None, None)
        if loss is not None and self.training:
            is_stream = shift_labels is not None and attention_mask is None
            tensors = hidden_states, outputs.raw_last_hidden_state, attention_mask
            kept = (kept_positions(tensor, logits_to_keep) for tensor in tensors)
            penalties = activation_penalties(*kept, targets, is_stream, num_items, self.config)
            loss = loss + penalties[0] + penalties[1]
        return RNNCausalLMOutput(
            loss=loss,
            logits=logits,
            state=outputs.state,
            hidden_states=outputs.hidden_states,
            cross_entropy=cross_entropy,
            activation_penalty=penalties[0],
            temporal_activation_penalty=penalties[1],
        )

    def parse(self, *args, **kwargs):
        """Raises a `ValueError`, as these networks have no syntactic distances."""
        raise ValueError(f"this model induces no trees ({self.config.cell_type}): parse with an ON-LSTM or a PRPN")

    syntactic_distances = sentence_distances = parse_layers = parse_by_layer = draw_distances = parse


class RNNForSequencePairClassification(SequencePairClassifier, RNNPreTrainedModel):
    """A recurrent network that reads both sequences of a pair, and a classifier of their last outputs."""

    def __init__(self, config: RNNConfig):
        super().__init__(config)
        self.model = RNNModel(config)
        self.classifier = PairClassifier(config.layer_sizes[-1], config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        input_ids_pair: torch.LongTensor | None = None,
        attention_mask_pair: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
    ) -> SequenceClassifierOutput | tuple:
        """Takes the arguments of `SequencePairClassifier`."""
        both = stacked_sides(input_ids, attention_mask, input_ids_pair, attention_mask_pair, token_type_ids)
        # `chunk` instead of `unflatten` would fix the batch size of an exported graph.
        left, right = encode_by_length(self.model, *both).unflatten(0, (2, -1))
        logits = self.classifier(left, right)
        loss = None if labels is None else class_loss(self, labels, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits)


# Below the classifier of pairs, as the code of a checkpoint names the last class of each Auto class.
class RNNForSequenceClassification(SequenceClassifier, RNNPreTrainedModel):
    """A recurrent network that reads one sequence, and a linear classifier of the output at its last real token."""

    def __init__(self, config: RNNConfig):
        super().__init__(config)
        self.model = RNNModel(config)
        self.score = nn.Linear(config.output_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        input_ids_pair: torch.LongTensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput | tuple:
        """Takes the arguments of `SequenceClassifier`."""
        check_single_sequences(self, input_ids, attention_mask, input_ids_pair, token_type_ids)
        kwargs |= {"use_cache": False, "return_dict": True}
        outputs = self.model(input_ids, attention_mask, inputs_embeds, **kwargs)
        logits = self.score(outputs.last_hidden_state[:, -1])  # padding repeats the output of the last real token
        loss = None if labels is None else class_loss(self, labels, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)
