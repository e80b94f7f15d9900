"""PRPN: a language model with a parsing, a reading and a predict network (Shen, Lin, Huang & Courville, ICLR 2018)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.utils import can_return_tuple

from ..fast.batch_norm import MaskedBatchNorm
from ..fast.deviation_norm import DeviationNorm
from ..fast.dropout import ElementDropout
from ..fast.linear import Linear
from ..fast.padding import Padding
from ..fast.projections import parameters, show, weight_and_bias
from ..fast.prpn.equations import ReadingWeights
from ..fast.prpn.operator import IMPLEMENTATIONS, ReadingOutput, read_sequence
from ..fast.structured_attention import attend_to_windows
from ..parsing.mixin import ParsingMixin
from ..trees.induced_tree import InducedTree
from .configuration_prpn import PRPNConfig
from .recurrent.language_model import (
    RecurrentCausalLMOutput,
    RecurrentForCausalLM,
    RecurrentModel,
    RecurrentModelOutput,
    RecurrentPreTrainedModel,
)
from .recurrent.sequence_classification import RecurrentForSequenceClassification
from .recurrent.state import ModelState


@dataclass
class PRPNState(ModelState):
    """What a PRPN needs to go on from where it stopped.

    Attributes:
        lookback: `[B, lookback, E]`, the last words' embeddings before dropout; 0 before the start of the text.
        distances: `[B, S]`, the last words' syntactic distances, newest last; infinite before the start of the text,
            so that the slots of memories that there are not stay closed.
        memories: for each layer of the reading network the hidden and the cell states of the last steps, each
            `[B, S, H]`, newest last. The predict network attends to those of the last layer.
    """

    lookback: torch.Tensor
    distances: torch.Tensor
    memories: tuple[tuple[torch.Tensor, torch.Tensor], ...]


class SyntacticStructure(NamedTuple):
    """What the parsing network finds in a sequence.

    Attributes:
        distance_tape: `[B, S + T]`, the syntactic distances of the state, then those of the words.
        reading_gates: `[B, T, S]`, how far each memory is open to the reading network, oldest first.
        prediction_gates: `[B, T, S]`, how far to the predict network.
    """

    distance_tape: torch.Tensor
    reading_gates: torch.Tensor
    prediction_gates: torch.Tensor


@dataclass
class ParsingState(ModelState):
    """What the parsing network alone needs to go on: the `lookback` of a `PRPNState`."""

    lookback: torch.Tensor


@dataclass
class PRPNModelOutput(RecurrentModelOutput):
    r"""
    Output of `PRPNModel`.

    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, embedding_size)`):
            Output of the predict network, after the output dropout; the input of the head.
        state (`PRPNState`, *optional*, returned when `use_cache=True`):
            What the model knows after the last real token of every row, to go on from.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned when `output_hidden_states=True`):
            The embedded input, then the output of every layer of the reading network, each
            `(batch_size, sequence_length, size)`.
        attentions (`tuple(torch.FloatTensor)`, *optional*, returned when `output_attentions=True`):
            Attention to the memories of every layer of the reading network, then of the predict network (as far as
            they have one), each `(batch_size, sequence_length, num_slots)`, newest memory first. 0 at padding.
        distances (`torch.FloatTensor` of shape `(batch_size, sequence_length)`, *optional*, returned when `output_distances=True`):
            Syntactic distances in [0, 1]. 0 at padding.
        memory_gates (`torch.FloatTensor` of shape `(2, batch_size, sequence_length, num_slots)`, *optional*, returned when `output_distances=True`):
            How far each memory is open to the reading network and to the predict network, newest first, in [0, 1].
            0 at padding.
    """  # noqa: E501

    attentions: tuple[torch.FloatTensor, ...] | None = None
    distances: torch.FloatTensor | None = None
    memory_gates: torch.FloatTensor | None = None


@dataclass
class PRPNCausalLMOutput(RecurrentCausalLMOutput):
    r"""
    Output of `PRPNForCausalLM`.

    Args:
        loss (`torch.FloatTensor` of shape `()`, *optional*, returned when `labels` or `shift_labels` are given):
            Mean cross-entropy in nats.
        logits (`torch.FloatTensor` of shape `(batch_size, sequence_length, vocab_size)`):
            Scores of the next token before the softmax.
        state (`PRPNState`, *optional*, returned when `use_cache=True`):
            What the model knows after the last real token of every row, to go on from.
        hidden_states, attentions, distances, memory_gates: see `PRPNModelOutput`.
        cross_entropy (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss):
            The loss.
    """

    attentions: tuple[torch.FloatTensor, ...] | None = None
    distances: torch.FloatTensor | None = None
    memory_gates: torch.FloatTensor | None = None


class ParsingNetwork(nn.Module):
    """Reads the syntactic distances off a word and the words before it (the paper's section "Parsing Network").

    Two layers of convolution give two distances a step: `d_t`, that of the word, and `d'_{t+1}`, what the distance of
    the next word is expected to be. Each comes from its half of the units in between.
    """

    def __init__(self, config: PRPNConfig):
        super().__init__()
        self.dropout = ElementDropout(config.input_dropout)
        self.convolution = nn.Conv1d(config.embedding_size, config.hidden_size, config.lookback + 1)
        self.norm = MaskedBatchNorm(config.hidden_size)
        self.distance_convolution = nn.Conv1d(config.hidden_size, 2, kernel_size=1, groups=2)

    def forward(
        self, embeddings: torch.Tensor, lookback: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Distances `d_t` and `d'_{t+1}`, each `[B, T]`, in float32 or better.

        Args:
            embeddings: `[B, T, E]`.
            lookback: `[B, lookback, E]`, the embeddings before them.
            mask: `[B, T]` booleans, `False` at padding, or `None`.
        """
        inputs = self.dropout(torch.cat([lookback.to(embeddings.dtype), embeddings], dim=1)).transpose(1, 2)
        features = self.convolution(inputs)
        # Gates are differences of distances over a small resolution: half precision would be too coarse.
        features = self.norm(features.to(torch.promote_types(features.dtype, torch.float32)), mask).relu()
        output = self.distance_convolution
        with torch.autocast(features.device.type, enabled=False):
            weight, bias = (parameter.to(features.dtype) for parameter in parameters(output))
            distances = F.conv1d(self.dropout(features), weight, bias, groups=output.groups).sigmoid()
        return distances[:, 0], distances[:, 1]


def memory_gates(distances: torch.Tensor, past_distances: torch.Tensor, resolution: float, hard: bool) -> torch.Tensor:
    """How far each of the last `S` memories is open (the paper's section "Modeling Syntactic Structure").

    A memory is open as far as no word after it has a larger distance than this one: `alpha_j` compares the distances
    of this word and word `j`, and the gate of memory `i` is the product of `alpha_j` over the words after it.

    Args:
        distances: `[B, T]`, of each word (or those expected of the next word).
        past_distances: `[B, T, S]`, of the words after each memory, newest first: entry `s` belongs to the word after
            memory `s`. Infinite where there is no such memory.
        resolution: `alpha` falls from 1 to 0 where word `j` has a distance that is by this larger than ours.
        hard: whether it falls linearly, or as a sigmoid.

    Returns:
        `[B, T, S]`, newest memory first.
    """
    difference = (distances.unsqueeze(-1) - past_distances) / resolution
    alpha = F.hardtanh(difference * 2 + 1) / 2 + 0.5 if hard else (difference * 10 + 5).sigmoid()
    return alpha.cumprod(dim=-1)


class ReadingLayer(nn.Module):
    """One layer of the reading network: an LSTM that goes on from what it attends to among its memories.

    It is a `RecurrentLayer`, whose state is its memories. Its equations are in `fast/prpn/equations.py`.

    Attributes:
        implementation: which path of `read_sequence` runs, one of its `IMPLEMENTATIONS`.
    """

    implementations = IMPLEMENTATIONS
    implementation = "auto"

    def __init__(self, config: PRPNConfig, input_size: int, input_dropout: float):
        super().__init__()
        size = config.hidden_size
        self.num_slots, self.size = config.num_slots, size
        self.has_attention = config.reading_attention
        self.input_dropout = ElementDropout(input_dropout)
        self.key_dropout = ElementDropout(config.input_dropout)
        self.recurrent_dropout = ElementDropout(config.recurrent_dropout)
        if self.has_attention:
            self.key_projection = Linear(input_size + size, size)
        self.input_projection = Linear(input_size, 4 * size)
        self.input_norm = DeviationNorm(4 * size)
        self.recurrent_projection = Linear(size, 4 * size)
        self.recurrent_norm = DeviationNorm(4 * size)
        self.cell_norm = DeviationNorm(size)

    def forward(
        self, inputs: torch.Tensor, hidden_memories: torch.Tensor, cell_memories: torch.Tensor, gates: torch.Tensor
    ) -> ReadingOutput:
        """Reads a sequence.

        Args:
            inputs: `[B, T, input_size]`.
            hidden_memories: `[B, S, H]`, the hidden states of the steps before, newest last.
            cell_memories: `[B, S, H]`, their cell states.
            gates: `[B, T, S]`, how far each memory is open, oldest first.
        """
        input_gates = self.input_norm(self.input_projection(self.input_dropout(inputs)))
        (batch_size, length, _), size = inputs.shape, self.size
        summary_keep = self.recurrent_dropout.mask((size,), inputs.device)
        newest_keep = key_keep = None
        if self.has_attention:
            newest_keep, key_keep = (
                self.key_dropout.mask((batch_size, length, size), inputs.device) for _ in range(2)
            )
            key_inputs, key_map = self.key_dropout(inputs), weight_and_bias(self.key_projection, inputs)
        else:
            # Without attention every step reads the newest memory alone, whatever its key is.
            gates = F.pad(torch.ones_like(gates[..., :1]), (gates.shape[-1] - 1, 0))
            key_inputs, key_map = inputs[..., :0], (input_gates.new_zeros(size, size), input_gates.new_zeros(size))
        weights = ReadingWeights(
            *key_map,
            *weight_and_bias(self.recurrent_projection, inputs),
            *parameters(self.recurrent_norm),
            *parameters(self.cell_norm),
        )
        memories, masks = (hidden_memories, cell_memories), (newest_keep, key_keep, summary_keep)
        output = read_sequence(input_gates, key_inputs, weights, gates, *memories, *masks, self.implementation)
        if self.has_attention:
            show(self.key_projection, lambda: torch.cat([key_inputs, output.newest(newest_keep)], dim=-1))
        show(self.recurrent_projection, lambda: output.summaries(summary_keep))
        return output

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden and cell states of the memories before the first step: zeros."""
        zeros = torch.zeros(batch_size, self.num_slots, self.size, dtype=self.cell_norm.weight.dtype)
        return zeros, zeros.clone()

    def last_state(self, output: ReadingOutput, padding: Padding | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden and cell states of the last memories; those before the padding where there is some at the end."""
        padding = padding or Padding(None)
        return padding.last(output.hidden_tape, self.num_slots), padding.last(output.cell_tape, self.num_slots)


class ResidualBlock(nn.Module):
    """`relu(x + f(x))`, where `f` is two linear maps, each followed by batch normalisation."""

    def __init__(self, size: int, dropout: float):
        super().__init__()
        self.input_projection, self.input_norm = Linear(size, size), MaskedBatchNorm(size)
        self.dropout = ElementDropout(dropout)
        self.output_projection, self.output_norm = Linear(size, size), MaskedBatchNorm(size)

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """`inputs` `[N, size]`, `mask` `[N]` or `None`."""
        inner = self.dropout(self.input_norm(self.input_projection(inputs), mask).relu())
        return (inputs + self.output_norm(self.output_projection(inner), mask)).relu()


class PredictNetwork(nn.Module):
    """Looks back once more, with the gates expected of the next word (the paper's section "Predict Network")."""

    def __init__(self, config: PRPNConfig):
        super().__init__()
        size = config.hidden_size
        self.has_attention = config.prediction_attention
        self.dropout = ElementDropout(config.input_dropout)
        if self.has_attention:
            self.key_projection = Linear(size, size)
        features = 2 * size if self.has_attention else size
        self.residual_blocks = nn.ModuleList(
            ResidualBlock(features, config.input_dropout) for _ in range(config.num_residual_blocks)
        )
        self.output_projection = Linear(features, config.embedding_size)
        self.output_norm = MaskedBatchNorm(config.embedding_size)

    def forward(
        self, hidden: torch.Tensor, tape: torch.Tensor, gates: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the decoder takes in, `[B, T, E]`, and the attentions `[B, T, S]`, oldest memory first.

        Args:
            hidden: `[B, T, H]`, output of the reading network.
            tape: `[B, S + T, H]`, the same with the memories before it.
            gates: `[B, T, S]`, how far each memory is open to the next word, oldest first.
            mask: `[B, T]` booleans, `False` at padding, or `None`.
        """
        features, attention = hidden, None
        if self.has_attention:
            summary, attention = self.look_back(hidden, tape, gates)
            features = torch.cat([hidden, summary], dim=-1)
        return self.predict(features, mask), attention

    def look_back(
        self, hidden: torch.Tensor, tape: torch.Tensor, gates: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Summaries `[B, T, H]` of the memories, and the attentions `[B, T, S]`. Arguments as for `forward`."""
        keys = self.dropout(self.key_projection(self.dropout(hidden))).to(tape.dtype)
        summary, attention = attend_to_windows(keys, tape, gates)
        return summary.to(hidden.dtype), attention

    def predict(self, features: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """`features` `[B, T, H]`, or `[B, T, 2 * H]` with the summaries, to `[B, T, E]`."""
        batch_size, length = features.shape[:2]
        features = features.flatten(0, 1)
        flat_mask = None if mask is None else mask.flatten()
        for block in self.residual_blocks:
            features = block(features, flat_mask)
        outputs = self.output_norm(self.output_projection(self.dropout(features)), flat_mask).tanh()
        return outputs.view(batch_size, length, -1)


class PRPNPreTrainedModel(RecurrentPreTrainedModel):
    """Initialisation and what else all PRPN models share."""

    config: PRPNConfig
    config_class = PRPNConfig
    _no_split_modules = ["ParsingNetwork", "ReadingLayer", "PredictNetwork"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Conv1d):
            bound = (module.weight.shape[1] * module.weight.shape[2]) ** -0.5
            init.uniform_(module.weight, -bound, bound)
            init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, DeviationNorm | MaskedBatchNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
            if isinstance(module, MaskedBatchNorm):
                init.zeros_(module.running_mean)
                init.ones_(module.running_var)


class PRPNModel(PRPNPreTrainedModel, RecurrentModel):
    """The embedding, the parsing network, the reading network and the predict network, without the decoder."""

    def __init__(self, config: PRPNConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.parsing_network = ParsingNetwork(config) if config.parsing_network else None
        self.reading_network = nn.ModuleList(
            ReadingLayer(config, config.hidden_size, config.input_dropout)
            if layer
            else ReadingLayer(config, config.embedding_size, config.output_dropout)
            for layer in range(config.num_hidden_layers)
        )
        self.predict_network = PredictNetwork(config)
        self.output_dropout = ElementDropout(config.output_dropout)
        self.post_init()

    def initial_state(self, batch_size: int) -> PRPNState:
        """The state before the first token."""
        config, dtype = self.config, self.embeddings.weight.dtype
        lookback = config.lookback if config.parsing_network else 0
        return PRPNState(
            lookback=torch.zeros(batch_size, lookback, config.embedding_size, dtype=dtype),
            distances=torch.full((batch_size, config.num_slots), math.inf, dtype=dtype),
            memories=tuple(layer.initial_state(batch_size) for layer in self.reading_network),
        )

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        state: PRPNState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        output_distances: bool | None = None,
        **kwargs,
    ) -> PRPNModelOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 1 for real tokens and 0 for padding on either side, which
                leaves the state as it is and does not count in batch normalisation.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`.
            state: where to go on from; the initial state when not given.
            use_cache: whether to return the state; `config.use_cache` when not given.
            output_hidden_states: whether to return the output of every layer.
            output_attentions: whether to return the attentions of the reading and the predict network.
            output_distances: whether to return the syntactic distances and the gates.
            kwargs: `return_dict`, whether to return a `PRPNModelOutput` (default) or a tuple of what is not `None`.

        Raises:
            ValueError: if the inputs are missing, empty, outside the vocabulary, or do not fit together, or an
                argument is unknown.
        """
        self.further_options(kwargs)
        self.check_inputs(input_ids, inputs_embeds)
        config = self.config
        use_cache = config.use_cache if use_cache is None else use_cache
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        output_attentions = config.output_attentions if output_attentions is None else output_attentions

        embeddings = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        batch_size, length = embeddings.shape[:2]
        mask = self.time_first_mask(attention_mask, batch_size, length, embeddings.device)
        padding = Padding(None if mask is None else mask.t())
        state = self.check_state(state, batch_size, embeddings.device)
        # What follows reads the very tensors that are returned, so that one can ask for their gradients.
        hidden_states = [embeddings]
        hidden = embeddings = padding.to_end(embeddings)

        structure = self.find_structure(embeddings, state, padding.mask)
        attentions, memories = [], []
        for layer, layer_state in zip(self.reading_network, state.memories, strict=True):
            output = layer(hidden, *layer_state, structure.reading_gates)
            hidden, tape = output.outputs.to(embeddings.dtype), output.hidden_tape
            if output_hidden_states:
                hidden_states.append(padding.back(hidden))
                hidden = padding.to_end(hidden_states[-1])
                tape = torch.cat([tape[:, : config.num_slots], hidden.to(tape.dtype)], dim=1)
            if use_cache:
                memories.append(layer.last_state(output, padding))
            if config.reading_attention:
                attentions.append(output.attentions)
        outputs, attention = self.predict_network(hidden, tape, structure.prediction_gates, padding.mask)
        if config.prediction_attention:
            attentions.append(attention)
        last_hidden_state = self.output_dropout(outputs.to(embeddings.dtype))

        new_state = None
        if use_cache:
            lookback = torch.cat([state.lookback.to(embeddings.dtype), embeddings], dim=1)
            new_state = PRPNState(
                lookback=padding.last(lookback, state.lookback.shape[1]),
                distances=padding.last(structure.distance_tape, config.num_slots),
                memories=tuple(memories),
            )
        return PRPNModelOutput(
            last_hidden_state=padding.back(last_hidden_state),
            state=new_state,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(padding.back_or_zero(attention).flip(-1) for attention in attentions)
            if output_attentions
            else None,
            distances=padding.back_or_zero(structure.distance_tape[:, -length:]) if output_distances else None,
            memory_gates=torch.stack(
                [
                    padding.back_or_zero(gates).flip(-1)
                    for gates in (structure.reading_gates, structure.prediction_gates)
                ]
            )
            if output_distances
            else None,
        )

    def distances(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        state: PRPNState | ParsingState | None = None,
    ) -> tuple[torch.Tensor, ParsingState]:
        """The syntactic distances of a text, without reading it: the parsing network does not need the others.

        Args:
            input_ids: `(batch_size, sequence_length)`.
            attention_mask: the same shape, 0 at padding on either side.
            state: where to go on from; the start of a text when not given.

        Returns:
            The distances `(batch_size, sequence_length)`, 0 at padding, and the state to go on from.
        """
        self.check_inputs(input_ids, None)
        embeddings = self.embeddings(input_ids)
        mask = self.time_first_mask(attention_mask, *input_ids.shape, embeddings.device)
        padding = Padding(None if mask is None else mask.t())
        if state is None:
            state = self.initial_state(len(input_ids))
        embeddings = padding.to_end(embeddings)
        lookback = state.lookback.to(embeddings)
        distances, _ = self.parsing_network(embeddings, lookback, padding.mask)
        lookback = padding.last(torch.cat([lookback, embeddings], dim=1), lookback.shape[1])
        return padding.back_or_zero(distances), ParsingState(lookback)

    def find_structure(
        self, embeddings: torch.Tensor, state: PRPNState, mask: torch.Tensor | None
    ) -> SyntacticStructure:
        """What the parsing network makes of words, and what that opens to the other two.

        Args:
            embeddings: `[B, T, E]`, padding at the end.
            state: where to go on from.
            mask: `[B, T]` booleans, `False` at padding, or `None`.
        """
        config = self.config
        if self.parsing_network is None:
            distances = next_distances = state.distances.new_zeros(embeddings.shape[:2])
        else:
            distances, next_distances = self.parsing_network(embeddings, state.lookback, mask)
        tape = torch.cat([state.distances.to(distances.dtype), distances], dim=1)
        # Contiguous, because a compiler cannot order the strides of overlapping windows for every length.
        newest_first = tape.unfold(1, config.num_slots, 1)[:, 1:].contiguous().flip(-1)
        if self.parsing_network is None:
            is_open = newest_first.isfinite().to(distances.dtype).flip(-1)
            return SyntacticStructure(tape, is_open, is_open)
        gates = (
            memory_gates(own, newest_first, config.resolution, config.hard) for own in (distances, next_distances)
        )
        return SyntacticStructure(tape, *(gate.flip(-1) for gate in gates))


class PRPNForCausalLM(PRPNPreTrainedModel, ParsingMixin, RecurrentForCausalLM):
    """A PRPN that predicts the next word, and shows the constituency tree that it found on the way.

    Its `forward` also takes `output_attentions` and `output_distances`, as `PRPNModel` does.
    """

    output_class = PRPNCausalLMOutput
    model_class = PRPNModel

    @property
    def induces_trees(self) -> bool:
        """Whether there is a parsing network."""
        return self.config.parsing_network

    def parse(self, sentences, tokenizer=None, *, hard: bool = False, **options) -> InducedTree | list[InducedTree]:
        """Returns the constituency trees that the model induces; arguments as for `ParsingMixin.parse`, and:

        Args:
            sentences: see there.
            tokenizer: see there.
            hard: make the trees of the gates, at infinite temperature, instead of splitting at the largest distance.
                A word's gate is then open to the words back to the last one with a larger distance, and to no others;
                these dependency ranges never overlap in part (the paper's appendix). It is the `branching_bias`
                `"ranges"`.
            options: further ones of `ParsingMixin.parse`.

        Raises:
            ValueError: as there, or if `hard` meets another `branching_bias`.
        """
        if hard and options.setdefault("branching_bias", "ranges") != "ranges":
            raise ValueError(
                f'hard=True is the branching_bias "ranges", not {options["branching_bias"]!r}: give one of them'
            )
        return super().parse(sentences, tokenizer, **options)

    def syntactic_distances(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        state: PRPNState | ParsingState | None = None,
        layer: int | None = None,
    ) -> tuple[torch.Tensor, ParsingState]:
        """What `parse` builds trees from; only the parsing network is run.

        Args:
            input_ids: `(batch_size, sequence_length)`.
            attention_mask: the same shape, 0 at padding.
            state: where to go on from.
            layer: `None`, as one parsing network serves all layers.

        Returns:
            The distances `(batch_size, sequence_length)`, and the state to go on from.

        Raises:
            ValueError: if a layer is given, or the model has no parsing network.
        """
        parsing_network = self.model.parsing_network
        if parsing_network is None:
            raise ValueError("this PRPN induces no trees: it has no parsing network (parsing_network=False)")
        if layer is not None:
            raise ValueError(
                f"layer {layer} has no distances of its own: a PRPN has one parsing network; leave it out"
            )
        return self.model.distances(input_ids, attention_mask, state)

    @staticmethod
    def distances_by_layer(output: PRPNCausalLMOutput) -> torch.Tensor:
        """What trees are built from in an output with `output_distances=True`: `(1, batch_size, length)`."""
        return output.distances.unsqueeze(0)


class PRPNForSequenceClassification(PRPNPreTrainedModel, RecurrentForSequenceClassification):
    """A PRPN that reads one sequence, and a linear map that classifies what it made of it."""

    model_class = PRPNModel


__all__ = ["PRPNForCausalLM", "PRPNForSequenceClassification", "PRPNModel", "PRPNPreTrainedModel"]
