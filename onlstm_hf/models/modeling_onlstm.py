"""PyTorch ON-LSTM: an LSTM whose neurons are ordered by how long they remember.

Shen, Tan, Sordoni & Courville, "Ordered Neurons: Integrating Tree Structures into Recurrent Neural Networks" (ICLR
2019), with the dropouts and penalties of the AWD-LSTM (Merity, Keskar & Socher 2018).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_onlstm import ONLSTMConfig
from .dropout import LockedDropout, activation_penalties, bind_projection, dropped_words, kept_entries
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

try:  # the installed package's `parse` has more options, and pictures
    from onlstm_hf.parsing.mixin import ParsingMixin
except ImportError:
    from .parsing import ParsingMixin

try:  # fast paths of the installed package, see `ONLSTMLayer.forward`
    from onlstm_hf.fast.onlstm import operator as fast
except ImportError:
    fast = None


# The equations, section 4 of the paper


def cumax(logits: torch.Tensor) -> torch.Tensor:
    """Cumulative softmax over the last dimension (equation 6): a soft, monotone switch from 0 to 1."""
    return logits.softmax(dim=-1).cumsum(dim=-1)


def ordered_neurons_step(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes one step, equations 7 to 14, with `--implementation reference` or if no fast path fits.

    Args:
        gates: `[B, 2 * C + 4 * H]`, the affine map of input and previous hidden state, before the nonlinearities:
            master input gate (`C`), master forget gate (`C`), candidate, input, forget and output gate (`H` each).
        cell: `[B, C, K]`, the previous cell state in `C` chunks of `K` units, `H = C * K`.

    Returns:
        The hidden state `[B, H]`, the cell state `[B, C, K]`, and the master input and forget gates `[B, 2, C]`.
    """
    num_chunks, chunk_size = cell.shape[1:]
    size = num_chunks * chunk_size
    master_input, master_forget, candidate, input_gate, forget_gate, output_gate = gates.split(
        [num_chunks, num_chunks, size, size, size, size], dim=-1
    )
    master_input_gate = 1 - cumax(master_input)
    master_forget_gate = cumax(master_forget)
    candidate, input_gate, forget_gate, output_gate = (
        units.unflatten(-1, (num_chunks, chunk_size))
        for units in (candidate.tanh(), input_gate.sigmoid(), forget_gate.sigmoid(), output_gate.sigmoid())
    )

    master_input_chunks, master_forget_chunks = master_input_gate.unsqueeze(-1), master_forget_gate.unsqueeze(-1)
    overlap = master_forget_chunks * master_input_chunks
    forget_gate = forget_gate * overlap + (master_forget_chunks - overlap)
    input_gate = input_gate * overlap + (master_input_chunks - overlap)
    cell = forget_gate * cell + input_gate * candidate
    hidden = output_gate * cell.tanh()
    return hidden.flatten(1), cell, torch.stack([master_input_gate, master_forget_gate], dim=1)


class ONLSTMLayerOutput(NamedTuple):
    """Output of one layer.

    Attributes:
        outputs: `[T, B, H]`, the hidden states. Padding repeats the state before it.
        state: the last hidden state `[B, H]` and cell state `[B, C, K]`.
        forget_distances: `[T, B]`, one minus the mean of the master forget gate.
        input_distances: `[T, B]`, the mean of the master input gate.
    """

    outputs: torch.Tensor
    state: tuple[torch.Tensor, torch.Tensor]
    forget_distances: torch.Tensor
    input_distances: torch.Tensor


def ordered_neurons(
    input_gates: torch.Tensor,
    recurrent: Callable[[torch.Tensor], torch.Tensor],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None = None,
    loop: Callable = loop,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs the recurrence step by step, differentiated by autograd.

    Args:
        input_gates: `[T, B, 2 * C + 4 * H]`, the affine map of the inputs.
        recurrent: maps the previous hidden state `[B, H]` to its part of the gates.
        hidden, cell: `[B, H]` and `[B, C, K]`, before the first step.
        mask: `[T, B]` booleans, `False` where a step leaves the state as it is (padding), or `None`.
        loop: `loop` or `scan` of `state.py`.

    Returns:
        The hidden states `[T, B, H]`, the last cell state, and the means of both master gates `[T, B, 2]`.
    """
    dtype, input_dtype = state_dtype(input_gates), input_gates.dtype

    def step(state, entries):
        (hidden, cell), (gates, mask) = state, entries
        next_hidden, next_cell, master_gates = ordered_neurons_step(gates + recurrent(hidden), cell)
        if mask is not None:
            next_hidden = torch.where(mask[:, None], next_hidden, hidden)
            next_cell = torch.where(mask[:, None, None], next_cell, cell)
        return (next_hidden, next_cell), (next_hidden, master_gates.mean(dim=-1))

    (_, cell), (outputs, means) = loop(step, (hidden.to(dtype), cell.to(dtype)), (input_gates.to(dtype), mask))
    return outputs.to(input_dtype), cell, means


class ONLSTMLayer(nn.Module):
    """One layer of ordered neurons, with drop-connect on its hidden-to-hidden weight."""

    # Names for `set_implementation`; fast paths need the installed package.
    implementations = ("auto", *LOOPS, *(fast.PATHS if fast else ()))
    implementation = "auto"

    def __init__(self, input_size: int, size: int, chunk_size: int, weight_dropout: float):
        super().__init__()
        self.size, self.chunk_size, self.weight_dropout = size, chunk_size, weight_dropout
        num_gates = 4 * size + 2 * (size // chunk_size)
        self.input_projection = nn.Linear(input_size, num_gates)
        self.recurrent_projection = nn.Linear(size, num_gates)

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None
    ) -> ONLSTMLayerOutput:
        """Reads a sequence.

        Args:
            inputs: `[T, B, input_size]`.
            hidden, cell: `[B, H]` and `[B, C, K]`, before the first step.
            mask: `[T, B]` booleans, `False` at padding on either side, or `None`.
        """
        path = None
        is_plain_map = is_plain(self.input_projection, self.recurrent_projection)
        if fast is not None and is_plain_map and self.implementation not in LOOPS:
            path = fast.RECURRENCE.choose(self.implementation, inputs)
        if path is not None:
            outputs, cell, means = self.run_fast(inputs, hidden, cell, mask, path)
        else:
            recurrent = bind_projection(self.recurrent_projection, inputs, self.weight_dropout, self.training)
            run = LOOPS.get(self.implementation, loop)
            outputs, cell, means = ordered_neurons(self.input_projection(inputs), recurrent, hidden, cell, mask, run)
        input_means, forget_means = means.unbind(dim=-1)
        return ONLSTMLayerOutput(outputs, (outputs[-1], cell), 1 - forget_means, input_means)

    def run_fast(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, mask: torch.Tensor | None, path: str
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Computes `ordered_neurons` by a fast path, which reads the weight once and applies drop-connect to it."""
        weight, kept, scale = self.recurrent_projection.weight, None, 1 - self.weight_dropout
        if self.training:
            kept = kept_entries(weight.shape, self.weight_dropout, weight.device) if self.weight_dropout > 0 else None
            scale = 1.0
        biases = self.input_projection.bias + self.recurrent_projection.bias
        gates = fast.linear(inputs, self.input_projection.weight, biases)
        return fast.ordered_neurons(gates, weight, hidden, cell, mask, path, scale, kept)

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the hidden and cell state before the first token: zeros, on the default device."""
        dtype = getattr(self.recurrent_projection.weight, "dtype", torch.float32)  # packed weights have none
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        hidden = torch.zeros(batch_size, self.size, dtype=dtype)
        return hidden, hidden.new_zeros(batch_size, self.size // self.chunk_size, self.chunk_size)


# The model


@dataclass
class ONLSTMModelOutput(ModelOutput):
    r"""
    Output of `ONLSTMModel`. Sequences are `(batch_size, sequence_length, size)`.

    Args:
        last_hidden_state: output of the last layer after the output dropout; the input of the head.
        state (returned when `use_cache=True`): hidden and cell state of every layer after the last real token.
        hidden_states (returned when `output_hidden_states=True`): the embedded input, then the output of every layer
            before dropout.
        raw_last_hidden_state (returned in training mode): output of the last layer before the output dropout.
        forget_distances, input_distances (returned when `output_distances=True`): one minus the mean of the master
            forget gate, the syntactic distance; and the mean of the master input gate. Both are `(num_hidden_layers,
            batch_size, sequence_length)`, in [0, 1], and 0 at padding.
    """

    last_hidden_state: torch.FloatTensor | None = None
    state: RecurrentState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    raw_last_hidden_state: torch.FloatTensor | None = None
    forget_distances: torch.FloatTensor | None = None
    input_distances: torch.FloatTensor | None = None


@dataclass
class ONLSTMCausalLMOutput(ModelOutput):
    r"""
    Output of `ONLSTMForCausalLM`.

    Args:
        loss: mean cross-entropy in nats, in training mode plus both penalties.
        logits (returned unless `skip_logits=True`): `(batch_size, sequence_length, vocab_size)`, scores of the next
            token before the softmax; with a mixture of softmaxes, log probabilities.
        state, hidden_states, forget_distances, input_distances: see `ONLSTMModelOutput`.
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
    forget_distances: torch.FloatTensor | None = None
    input_distances: torch.FloatTensor | None = None


class ONLSTMPreTrainedModel(RecurrentPreTrainedModel):
    """Base class of all ON-LSTM models."""

    config: ONLSTMConfig
    _no_split_modules = ["ONLSTMLayer"]


class ONLSTMModel(ONLSTMPreTrainedModel):
    """The embedding and the stack of layers with locked dropout around them, without a head."""

    auto_class_name = "AutoModel"
    layer_class: type[nn.Module] = ONLSTMLayer  # models with another cell override it

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        input_sizes = [config.embedding_size, *config.layer_sizes[:-1]]
        self.layers = nn.ModuleList(
            self.layer_class(input_size, size, config.chunk_size, config.weight_dropout)
            for input_size, size in zip(input_sizes, config.layer_sizes, strict=True)
        )
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.post_init()

    def initial_state(self, batch_size: int) -> RecurrentState:
        """Returns the state before the first token, on the default device."""
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
        output_distances: bool | None = None,
        num_layers: int | None = None,
        **kwargs,
    ) -> ONLSTMModelOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 0 at padding on either side, which keeps the state.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`; word dropout is not applied.
            state: the state before the first token; zeros by default.
            use_cache, output_hidden_states: whether to return the state, and the output of every layer.
            output_distances: whether to return the syntactic distances of every layer.
            num_layers: run only that many layers, lowest first; the others keep their state.
            kwargs: `return_dict`, whether to return an `ONLSTMModelOutput` (default) or a tuple without `None`s.

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
        num_layers = len(self.layers) if num_layers is None else num_layers
        if num_layers not in range(1, len(self.layers) + 1):
            raise ValueError(f"num_layers must be an integer from 1 to {len(self.layers)}, not {num_layers!r}")
        for layer, layer_state in zip(self.layers[:num_layers], state.layers[:num_layers], strict=True):
            dropout = self.hidden_dropout if layer_outputs else self.input_dropout
            output = layer(dropout(hidden_states[-1].transpose(0, 1)), *layer_state, mask)
            hidden_states.append(output.outputs.transpose(0, 1))
            layer_outputs.append(output)
        raw_output = hidden_states[-1]

        forget_distances = input_distances = None
        if output_distances:
            forget_distances = torch.stack([output.forget_distances for output in layer_outputs])
            input_distances = torch.stack([output.input_distances for output in layer_outputs])
            if mask is not None:
                forget_distances, input_distances = forget_distances * mask, input_distances * mask
            forget_distances, input_distances = forget_distances.transpose(1, 2), input_distances.transpose(1, 2)
        new_state = RecurrentState((*(output.state for output in layer_outputs), *state.layers[num_layers:]))
        return ONLSTMModelOutput(
            last_hidden_state=self.output_dropout(raw_output.transpose(0, 1)).transpose(0, 1),
            state=new_state if use_cache else None,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            raw_last_hidden_state=raw_output if self.training else None,
            forget_distances=forget_distances,
            input_distances=input_distances,
        )


# The heads


class ONLSTMForCausalLM(LanguageModelHead, ParsingMixin, ONLSTMPreTrainedModel, RecurrentGenerationMixin):
    """An ON-LSTM language model, which also induces constituency trees."""

    model_class: type[ONLSTMModel] = ONLSTMModel  # models with another cell override it

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.model = self.model_class(config)
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
    ) -> ONLSTMCausalLMOutput | tuple:
        """Takes the arguments of `LanguageModelHead`, and those of `ONLSTMModel`."""
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
        return ONLSTMCausalLMOutput(
            loss=loss,
            logits=logits,
            state=outputs.state,
            hidden_states=outputs.hidden_states,
            cross_entropy=cross_entropy,
            activation_penalty=penalties[0],
            temporal_activation_penalty=penalties[1],
            forget_distances=outputs.forget_distances,
            input_distances=outputs.input_distances,
        )

    def syntactic_distances(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        state: RecurrentState | None = None,
        layer: int | None | Sequence[int | None] = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Returns the forget distances of layers, from which `parse` builds trees, and the new state.

        Layers above the highest requested one do not run and keep their state.

        Args:
            input_ids, attention_mask, state: see `ONLSTMModel`.
            layer: one layer, counted from 0, for distances `(batch_size, sequence_length)`, or a sequence of layers,
                for `(layers, batch_size, sequence_length)`; `None` is `config.parse_layer`.
        """
        is_one = not isinstance(layer, Sequence)
        layers = [self.config.parse_layer if one is None else one for one in ([layer] if is_one else layer)]
        for unknown in set(layers).difference(range(self.config.num_hidden_layers)):
            raise ValueError(f"layer {unknown} does not exist: layers are 0 to {self.config.num_hidden_layers - 1}")
        options = {"use_cache": True, "output_distances": True, "num_layers": max(layers) + 1, "return_dict": True}
        outputs = self.model(input_ids, attention_mask=attention_mask, state=state, **options)
        return outputs.forget_distances[layers[0] if is_one else layers], outputs.state

    @staticmethod
    def distances_by_layer(output: ONLSTMCausalLMOutput) -> torch.Tensor:
        """Returns the distances that define trees, `(layers, batch_size, length)`; needs `output_distances=True`."""
        return output.forget_distances


class ONLSTMForSequencePairClassification(SequencePairClassifier, ONLSTMPreTrainedModel):
    """An ON-LSTM that reads both sequences of a pair, and a classifier that compares their last outputs."""

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.model = ONLSTMModel(config)
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
class ONLSTMForSequenceClassification(SequenceClassifier, ONLSTMPreTrainedModel):
    """An ON-LSTM that reads one sequence, and a linear map that classifies the output at its last real token."""

    def __init__(self, config: ONLSTMConfig):
        super().__init__(config)
        self.model = ONLSTMModel(config)
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
