"""PyTorch PRPN: a language model with a parsing, a reading and a predict network.

Shen, Lin, Huang & Courville, "Neural Language Modeling by Jointly Learning Syntax and Lexicon" (ICLR 2018). With `B`
rows, `T` steps, `S` memory slots and `H` units, a tape `[B, S + T, H]` holds the `S` memories before the first step,
then one memory per step. Step `t` sees the window `[:, t : t + S]`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import distributed, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_prpn import PRPNConfig
from .dropout import bind_projection, kept_entries
from .heads import LanguageModelHead, SequenceClassifier, check_single_sequences, class_loss
from .state import (
    LOOPS,
    Linear,
    ModelState,
    RecurrentGenerationMixin,
    RecurrentPreTrainedModel,
    check_inputs,
    check_state,
    has_no_hooks,
    is_plain,
    loop,
    real_tokens,
)

try:  # the installed package's `parse` has more options, and pictures
    from onlstm_hf.parsing.mixin import ParsingMixin
except ImportError:
    from .parsing import ParsingMixin

try:  # fast paths of the installed package, see `ReadingLayer.forward`
    from onlstm_hf.fast.prpn import operator as fast
except ImportError:
    fast = None

ATTENTION_EPSILON = 1e-8
DEVIATION_EPSILON = 1e-6
# Steps of one product of the predict network's attention.
STEPS_PER_BLOCK = 64


# The equations of gates and attention, section 4


def memory_gates(distances: torch.Tensor, past_distances: torch.Tensor, resolution: float, hard: bool) -> torch.Tensor:
    """Returns the gates `[B, T, S]` of the last `S` memories (the paper's section "Modeling Syntactic Structure").

    A memory closes when a word after it has a larger distance than this word: `alpha_j` compares the distances of this
    word and word `j`, and the gate of memory `i` is the product of `alpha_j` over the words after it.

    Args:
        distances: `[B, T]`, of each word (or expected for the next word).
        past_distances: `[B, T, S]`, of the word after each memory, newest first; infinite before the text.
        resolution: `alpha` falls from 1 to 0 as the distance of word `j` exceeds this word's by up to this amount.
        hard: whether it falls linearly instead of as a sigmoid.
    """
    difference = (distances.unsqueeze(-1) - past_distances) / resolution
    alpha = F.hardtanh(difference * 2 + 1) / 2 + 0.5 if hard else (difference * 10 + 5).sigmoid()
    return alpha.cumprod(dim=-1)


def attend(scores: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Structured attention: a softmax of scores `[..., S]` whose terms are weighted by the gates `[..., S]`."""
    # Subtracting the largest score does not cancel: the epsilon matters when the gates are nearly closed.
    gated = (scores - scores.amax(dim=-1, keepdim=True)).exp() * gates
    return gated / (gated.sum(dim=-1, keepdim=True) + ATTENTION_EPSILON)


def attend_to_windows(
    keys: torch.Tensor, tape: torch.Tensor, gates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the summary `[B, T, H]` and the attention `[B, T, S]` of every step to its window, given all keys.

    Args:
        keys: `[B, T, H]`.
        tape: `[B, S + T, H]`; no step reads the last memory.
        gates: `[B, T, S]`, oldest memory first.
    """
    num_slots, length = gates.shape[-1], keys.shape[1]
    if isinstance(length, int) and length > STEPS_PER_BLOCK:  # not for a symbolic length in compiled code
        blocks = []
        for start in range(0, length, STEPS_PER_BLOCK):
            end = start + STEPS_PER_BLOCK
            blocks.append(attend_to_windows(keys[:, start:end], tape[:, start : end + num_slots], gates[:, start:end]))
        return tuple(torch.cat(parts, dim=1) for parts in zip(*blocks, strict=True))
    # Scoring all pairs of a step and a memory, and using a band of them, is faster than cutting out the windows.
    memories = tape[:, : length + num_slots - 1]
    band = torch.arange(num_slots, device=keys.device) + torch.arange(length, device=keys.device)[:, None]
    band = band.expand(keys.shape[0], -1, -1)
    scores = torch.bmm(keys, memories.transpose(1, 2)).gather(2, band) / math.sqrt(keys.shape[-1])
    attention = attend(scores.to(gates.dtype), gates)
    weights = attention.new_zeros(*attention.shape[:2], memories.shape[1]).scatter(2, band, attention)
    return torch.bmm(weights, memories), attention


# State and outputs


@dataclass
class PRPNState(ModelState):
    """State of a PRPN between two tokens.

    Attributes:
        lookback: `[B, lookback, E]`, the last words' embeddings before dropout; 0 before the start of the text.
        distances: `[B, S]`, the last words' syntactic distances, newest last; infinite before the start of the text.
        memories: for each layer of the reading network the hidden and the cell states of the last steps, each
            `[B, S, H]`, newest last. The predict network attends to those of the last layer.
    """

    lookback: torch.Tensor
    distances: torch.Tensor
    memories: tuple[tuple[torch.Tensor, torch.Tensor], ...]


@dataclass
class PRPNModelOutput(ModelOutput):
    r"""
    Output of `PRPNModel`. Sequences are `(batch_size, sequence_length, size)`.

    Args:
        last_hidden_state: output of the predict network after the output dropout; the input of the head.
        state (returned when `use_cache=True`): state after the last real token of every row.
        hidden_states (returned when `output_hidden_states=True`): the embedded input, then the output of every layer
            of the reading network.
        attentions (returned when `output_attentions=True`): attention to the memories, by every layer of the reading
            network, then by the predict network (if they have attention), each `(batch_size, sequence_length,
            num_slots)`, newest memory first. 0 at padding.
        distances, memory_gates (returned when `output_distances=True`): syntactic distances, `(batch_size,
            sequence_length)`; and how far each memory is open to the reading and to the predict network, `(2,
            batch_size, sequence_length, num_slots)`, newest first. Both are in [0, 1], and 0 at padding.
    """

    last_hidden_state: torch.FloatTensor | None = None
    state: PRPNState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    distances: torch.FloatTensor | None = None
    memory_gates: torch.FloatTensor | None = None


@dataclass
class PRPNCausalLMOutput(ModelOutput):
    r"""
    Output of `PRPNForCausalLM`.

    Args:
        loss, cross_entropy: mean cross-entropy in nats.
        logits (returned unless `skip_logits=True`): `(batch_size, sequence_length, vocab_size)`, scores of the next
            token before the softmax; with a mixture of softmaxes, log probabilities.
        state, hidden_states, attentions, distances, memory_gates: see `PRPNModelOutput`.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    state: PRPNState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    cross_entropy: torch.FloatTensor | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    distances: torch.FloatTensor | None = None
    memory_gates: torch.FloatTensor | None = None


# Dropout, normalisation and padding


class ElementDropout(nn.Module):
    """Ordinary dropout, with a new mask for every step."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mask = self.mask(inputs.shape, inputs.device)
        return inputs if mask is None else inputs * mask.to(inputs.dtype)

    def mask(self, shape: Sequence[int], device: torch.device) -> torch.Tensor | None:
        """Returns factors for a tensor of a shape, or `None` if nothing is dropped."""
        if not self.training or self.probability == 0:
            return None
        return kept_entries(shape, self.probability, device, torch.float32).div_(1 - self.probability)


class DeviationNorm(nn.Module):
    """Layer normalisation of the PRPN's authors: divides by the unbiased standard deviation plus a constant.

    `torch.nn.LayerNorm` adds the constant to the variance. The two differ when values are nearly equal.
    """

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalises `inputs` `[..., size]`, in float32 or better."""
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        gain, bias = self.weight.to(inputs.dtype), self.bias.to(inputs.dtype)
        deviation = inputs.std(dim=-1, keepdim=True) + DEVIATION_EPSILON
        return gain * (inputs - inputs.mean(dim=-1, keepdim=True)) / deviation + bias


class MaskedBatchNorm(nn.Module):
    """Batch normalisation over the real positions of the batch, in all processes.

    Evaluation uses running averages of the training statistics, so that rows do not depend on each other.
    """

    momentum, epsilon = 0.1, 1e-5

    def __init__(self, num_channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_channels))
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.register_buffer("running_mean", torch.zeros(num_channels))
        self.register_buffer("running_var", torch.ones(num_channels))

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalises `inputs` `[B, C]` or `[B, C, T]`, in float32 or better; `mask` `[B]` or `[B, T]`, or `None`."""
        values = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        mean, variance = self.running_mean, self.running_var
        if self.training:
            is_plain = mask is None and not _is_distributed()
            # PyTorch's function is faster, but refuses a single position, and weights of another dtype.
            if is_plain and values.numel() > values.shape[1] and values.dtype == self.weight.dtype:
                options = self.weight, self.bias, True, self.momentum, self.epsilon
                return F.batch_norm(values, mean, variance, *options).to(inputs.dtype)
            mean, variance = self._statistics(values, mask)
        mean, variance, weight, bias = (tensor.to(values.dtype) for tensor in (mean, variance, self.weight, self.bias))
        scale = weight * torch.rsqrt(variance + self.epsilon)
        shape = (-1,) + (1,) * (values.dim() - 2)
        return torch.addcmul((bias - mean * scale).view(shape), values, scale.view(shape)).to(inputs.dtype)

    def _statistics(self, values: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and biased variance `[C]` over all processes, and updates the running averages."""
        dimensions = [dimension for dimension in range(values.dim()) if dimension != 1]
        real = torch.ones_like(values[:, :1]) if mask is None else mask.unsqueeze(1).to(values.dtype)
        count = _sum_over_processes(real.sum()).clamp(min=1)
        mean = _sum_over_processes((values * real).sum(dimensions)) / count
        centred = (values - mean.view((-1,) + (1,) * (values.dim() - 2))) * real
        variance = _sum_over_processes(centred.square().sum(dimensions)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return mean, variance


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _sum_over_processes(values: torch.Tensor) -> torch.Tensor:
    """Returns the sum over all processes; the backward pass sums the gradients."""
    if not _is_distributed():
        return values
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(values)


class Padding:
    """Moves the padding of a batch to the end of every row, where it changes nothing, and back.

    Args:
        mask: `[B, T]` booleans, `False` at padding, or `None`. The attribute `mask` has the padding at the end.
    """

    def __init__(self, mask: torch.Tensor | None):
        self.mask = self.given_mask = mask
        if mask is not None:
            places = torch.arange(mask.shape[1], device=mask.device)
            self.order = torch.where(mask, places, places + mask.shape[1]).argsort(dim=1)
            self.mask = mask.gather(1, self.order)
            num_real = mask.cumsum(dim=1)
            self.newest, self.lengths = (num_real - 1).clamp(min=0), num_real[:, -1]

    def to_end(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns `[B, T, ...]` with the padding at the end."""
        return tensor if self.mask is None else _gather(tensor, self.order)

    def restore(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns `[B, T, ...]` in the original order; padding repeats the entry of the last real token before it."""
        return tensor if self.mask is None else _gather(tensor, self.newest)

    def restore_zeroed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns `[B, T, ...]` in the original order, with 0 at padding."""
        if self.mask is None:
            return tensor
        return self.restore(tensor) * self.given_mask.view(*self.given_mask.shape, *(1,) * (tensor.dim() - 2))

    def last(self, tape: torch.Tensor, size: int) -> torch.Tensor:
        """Returns the last `size` real entries of each row of a tape `[B, size + T, ...]` with padding at the end."""
        if self.mask is None:
            return tape[:, tape.shape[1] - size :]
        return _gather(tape, self.lengths.unsqueeze(1) + torch.arange(size, device=tape.device))


def _gather(tensor: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Returns entries `[B, N, ...]` of `tensor` `[B, T, ...]` at `indices` `[B, N]`."""
    return tensor.gather(1, indices.view(*indices.shape, *(1,) * (tensor.dim() - 2)).expand(-1, -1, *tensor.shape[2:]))


# The three networks


class PreciseConv1d(nn.Conv1d):
    """`nn.Conv1d` that computes in the precision of its inputs."""

    def _conv_forward(self, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return super()._conv_forward(inputs, weight.to(inputs.dtype), bias.to(inputs.dtype))


class ParsingNetwork(nn.Module):
    """Computes syntactic distances from a word and the words before it (the paper's section "Parsing Network").

    Two convolutions give two distances per step, each from one half of the units: the word's own `d_t`, and the
    expected distance of the next word, `d'_{t+1}`.
    """

    def __init__(self, config: PRPNConfig):
        super().__init__()
        self.dropout = ElementDropout(config.input_dropout)
        self.convolution = nn.Conv1d(config.embedding_size, config.hidden_size, config.lookback + 1)
        self.norm = MaskedBatchNorm(config.hidden_size)
        self.distance_convolution = PreciseConv1d(config.hidden_size, 2, kernel_size=1, groups=2)

    def forward(
        self, embeddings: torch.Tensor, lookback: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the distances `d_t` and `d'_{t+1}`, each `[B, T]`, in float32 or better.

        Args:
            embeddings, lookback: `[B, T, E]` of the words, and `[B, lookback, E]` of the words before them.
            mask: `[B, T]` booleans, `False` at padding, or `None`.
        """
        inputs = self.dropout(torch.cat([lookback.to(embeddings.dtype), embeddings], dim=1)).transpose(1, 2)
        features = self.convolution(inputs)
        # Gates divide differences of distances by a small resolution: half precision would be too coarse.
        features = self.norm(features.to(torch.promote_types(features.dtype, torch.float32)), mask).relu()
        with torch.autocast(features.device.type, enabled=False):
            distances = self.distance_convolution(self.dropout(features)).sigmoid()
        return distances[:, 0], distances[:, 1]


class ReadingLayer(nn.Module):
    """One layer of the reading network: an LSTM whose previous state is its attention to past states."""

    # Names for `set_implementation`; fast paths need the installed package.
    implementations = ("auto", *LOOPS, *(fast.PATHS if fast else ()))
    implementation = "auto"

    def __init__(self, config: PRPNConfig, input_size: int, input_dropout: float):
        super().__init__()
        size = config.hidden_size
        self.num_slots, self.size = config.num_slots, size
        self.input_dropout = ElementDropout(input_dropout)
        self.key_dropout = ElementDropout(config.input_dropout)
        self.recurrent_dropout = ElementDropout(config.recurrent_dropout)
        self.key_projection = Linear(input_size + size, size) if config.reading_attention else None
        self.input_projection = Linear(input_size, 4 * size)
        self.input_norm = DeviationNorm(4 * size)
        self.recurrent_projection = Linear(size, 4 * size)
        self.recurrent_norm = DeviationNorm(4 * size)
        self.cell_norm = DeviationNorm(size)

    def forward(
        self, inputs: torch.Tensor, hidden_memories: torch.Tensor, cell_memories: torch.Tensor, gates: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Reads a sequence.

        Args:
            inputs: `[B, T, input_size]`, padding at the end.
            hidden_memories, cell_memories: `[B, S, H]`, the states of the steps before, newest last.
            gates: `[B, T, S]`, how far each memory is open, oldest first.

        Returns:
            The tapes of hidden and of cell states, `[B, S + T, H]` each, the given ones and those of every step; and
            the attention of each step to the memories of its window, `[B, T, S]`, oldest first, without gradient.
        """
        input_gates = self.input_norm(self.input_projection(self.input_dropout(inputs)))
        (batch_size, length, _), size, dtype = inputs.shape, self.size, input_gates.dtype
        summary_keep = self.recurrent_dropout.mask((size,), inputs.device)
        projections = [self.recurrent_projection]
        if self.key_projection is None:
            # Without attention every step reads only the newest memory, whatever its key.
            gates = F.pad(torch.ones_like(gates[..., :1]), (gates.shape[-1] - 1, 0))
            key_inputs, masks = inputs[..., :0], [None, None, summary_keep]
        else:
            key_masks = [self.key_dropout.mask((batch_size, length, size), inputs.device) for _ in range(2)]
            key_inputs, masks = self.key_dropout(inputs), [*key_masks, summary_keep]
            projections.append(self.key_projection)
        tensors = (tensor.to(dtype) for tensor in (gates, hidden_memories, cell_memories))
        is_plain_layer = is_plain(*projections) and has_no_hooks(self.recurrent_norm, self.cell_norm)
        arguments, path = (input_gates, key_inputs, *tensors, *masks), None
        if fast is not None and is_plain_layer and self.implementation not in LOOPS:
            path = fast.RECURRENCE.choose(self.implementation, input_gates)
        return self.run_loop(*arguments) if path is None else self.run_fast(path, *arguments)

    def read_step(
        self, input_gates: torch.Tensor, recurrent_gates: torch.Tensor, summary_cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes one step of the LSTM, with `--implementation reference` or if no fast path fits.

        Args:
            input_gates: `[B, 4 * H]`, the normalised map of the layer's input: input, forget, candidate, output gate.
            recurrent_gates: `[B, 4 * H]`, the projection of the memories' hidden states, weighted by attention.
            summary_cell: `[B, H]`, the memories' cell states, weighted by attention.
        """
        gates = input_gates + self.recurrent_norm(recurrent_gates)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        cell = forget_gate.sigmoid() * summary_cell + input_gate.sigmoid() * candidate.tanh()
        return output_gate.sigmoid() * self.cell_norm(cell).tanh(), cell

    def run_loop(
        self,
        input_gates: torch.Tensor,
        key_inputs: torch.Tensor,
        gates: torch.Tensor,
        hidden_memories: torch.Tensor,
        cell_memories: torch.Tensor,
        newest_keep: torch.Tensor | None,
        key_keep: torch.Tensor | None,
        summary_keep: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Runs the recurrence step by step, differentiated by autograd; returns what `forward` returns.

        The operations and their order are those of the authors.

        Args:
            input_gates, key_inputs: `[B, T, 4 * H]`, the normalised map of the layer's input; `[B, T, I]`, that input.
            gates, hidden_memories, cell_memories: see `forward`.
            newest_keep, key_keep: `[B, T, H]`, dropout masks of the key projection's hidden state, and of the key.
            summary_keep: `[H]`, dropout mask of the summarised hidden state, one for all steps and rows.
        """
        recurrent_gates = bind_projection(self.recurrent_projection, key_inputs)
        key_map = None if self.key_projection is None else bind_projection(self.key_projection, key_inputs)

        def step(windows, entries):
            (hidden_window, cell_window), (input_gates, key_inputs, gates, newest_keep, key_keep) = windows, entries
            if key_map is None:
                attention = attend(torch.zeros_like(gates), gates)
            else:
                newest = hidden_window[:, 0]
                newest = newest if newest_keep is None else newest * newest_keep
                key = key_map(torch.cat([key_inputs, newest], dim=-1))
                key = key if key_keep is None else key * key_keep
                with torch.autocast(key.device.type, enabled=False):
                    scores = (hidden_window @ key.unsqueeze(-1)).squeeze(-1) / math.sqrt(key.shape[-1])
                attention = attend(scores, gates)
            summary_hidden = (hidden_window * attention.unsqueeze(-1)).sum(dim=1)
            summary_cell = (cell_window * attention.unsqueeze(-1)).sum(dim=1)
            if summary_keep is not None:
                summary_hidden = summary_hidden * summary_keep
            hidden, cell = self.read_step(input_gates, recurrent_gates(summary_hidden), summary_cell)
            windows = tuple(
                torch.cat([new.unsqueeze(1), window[:, :-1]], dim=1)
                for new, window in ((hidden, hidden_window), (cell, cell_window))
            )
            return windows, (hidden, cell, attention)

        windows = hidden_memories.flip(1), cell_memories.flip(1)
        sequences = input_gates, key_inputs if key_map else None, gates.flip(-1), newest_keep, key_keep
        time_first = tuple(None if entries is None else entries.transpose(0, 1) for entries in sequences)
        _, outputs = LOOPS.get(self.implementation, loop)(step, windows, time_first)
        hiddens, cells, attentions = (output.transpose(0, 1) for output in outputs)
        hiddens, cells = torch.cat([hidden_memories, hiddens], dim=1), torch.cat([cell_memories, cells], dim=1)
        return hiddens, cells, attentions.flip(-1).detach()

    def run_fast(
        self, path: str, input_gates: torch.Tensor, key_inputs: torch.Tensor, *arguments: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Computes `run_loop` by a fast path, which reads all weights once."""
        zeros = input_gates.new_zeros(self.size, self.size), input_gates.new_zeros(self.size)
        modules = self.key_projection, self.recurrent_projection, self.recurrent_norm, self.cell_norm
        pairs = [zeros if module is None else (module.weight, module.bias) for module in modules]
        weights = [tensor for pair in pairs for tensor in pair]
        return fast.read_sequence(input_gates, key_inputs, weights, *arguments, path)

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns hidden and cell states of the memories before the first step: zeros, on the default device."""
        zeros = torch.zeros(batch_size, self.num_slots, self.size, dtype=self.cell_norm.weight.dtype)
        return zeros, zeros.clone()


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
    """Attends to the memories once more, with the next word's expected gates (the section "Predict Network")."""

    def __init__(self, config: PRPNConfig):
        super().__init__()
        size = config.hidden_size
        self.dropout = ElementDropout(config.input_dropout)
        self.key_projection = Linear(size, size) if config.prediction_attention else None
        features = 2 * size if config.prediction_attention else size
        self.residual_blocks = nn.ModuleList(
            ResidualBlock(features, config.input_dropout) for _ in range(config.num_residual_blocks)
        )
        self.output_projection = Linear(features, config.embedding_size)
        self.output_norm = MaskedBatchNorm(config.embedding_size)

    def forward(
        self, hidden: torch.Tensor, tape: torch.Tensor, gates: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the decoder's input, `[B, T, E]`, and the attentions `[B, T, S]`, oldest memory first.

        Args:
            hidden, tape: `[B, T, H]`, output of the reading network, and `[B, S + T, H]`, with the memories before it.
            gates: `[B, T, S]`, how far each memory is open to the next word, oldest first.
            mask: `[B, T]` booleans, `False` at padding, or `None`.
        """
        features, attention = hidden, None
        if self.key_projection is not None:
            keys = self.dropout(self.key_projection(self.dropout(hidden))).to(tape.dtype)
            summary, attention = attend_to_windows(keys, tape, gates)
            features = torch.cat([hidden, summary.to(hidden.dtype)], dim=-1)
        batch_size, length = hidden.shape[:2]
        features, mask = features.flatten(0, 1), None if mask is None else mask.flatten()
        for block in self.residual_blocks:
            features = block(features, mask)
        outputs = self.output_norm(self.output_projection(self.dropout(features)), mask).tanh()
        return outputs.view(batch_size, length, outputs.shape[-1]), attention


# The model


class PRPNPreTrainedModel(RecurrentPreTrainedModel):
    """Base class of all PRPN models."""

    config: PRPNConfig
    _no_split_modules = ["ParsingNetwork", "ReadingLayer", "PredictNetwork"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, DeviationNorm | MaskedBatchNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        if isinstance(module, MaskedBatchNorm):
            init.zeros_(module.running_mean)
            init.ones_(module.running_var)


class PRPNModel(PRPNPreTrainedModel):
    """The embedding, the parsing network, the reading network and the predict network, without the decoder."""

    auto_class_name = "AutoModel"

    def __init__(self, config: PRPNConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.parsing_network = ParsingNetwork(config) if config.parsing_network else None
        first, other = (config.embedding_size, config.output_dropout), (config.hidden_size, config.input_dropout)
        inputs = [first, *[other] * (config.num_hidden_layers - 1)]
        self.reading_network = nn.ModuleList(ReadingLayer(config, *size_and_dropout) for size_and_dropout in inputs)
        self.predict_network = PredictNetwork(config)
        self.output_dropout = ElementDropout(config.output_dropout)
        self.post_init()

    def initial_state(self, batch_size: int) -> PRPNState:
        """Returns the state before the first token, on the default device."""
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
            attention_mask: `(batch_size, sequence_length)`, 0 at padding on either side, which does not change the
                state or count in batch normalisation.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`.
            state: the state before the first token; the initial state by default.
            use_cache, output_hidden_states, output_attentions: whether to return the state, the output of every layer,
                and the attentions of the reading and the predict network.
            output_distances: whether to return the syntactic distances and the gates.
            kwargs: `return_dict`, whether to return a `PRPNModelOutput` (default) or a tuple without `None`s.

        Raises:
            ValueError: if the inputs are invalid or do not fit together, or an argument is unknown.
        """
        check_inputs(self, input_ids, inputs_embeds, kwargs)
        config = self.config
        use_cache = config.use_cache if use_cache is None else use_cache
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        output_attentions = config.output_attentions if output_attentions is None else output_attentions

        embeddings = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        batch_size, length = embeddings.shape[:2]
        padding = Padding(real_tokens(attention_mask, embeddings))
        state = check_state(state, self.initial_state(batch_size), embeddings.device)
        # The networks read the returned tensors themselves, so that users can ask for their gradients.
        hidden_states = [embeddings]
        hidden = embeddings = padding.to_end(embeddings)

        distance_tape, reading_gates, prediction_gates = self.find_structure(embeddings, state, padding.mask)
        attentions, memories = [], []
        for layer, layer_state in zip(self.reading_network, state.memories, strict=True):
            hidden_tape, cell_tape, attention = layer(hidden, *layer_state, reading_gates)
            hidden, tape = hidden_tape[:, config.num_slots :].to(embeddings.dtype), hidden_tape
            if output_hidden_states:
                hidden_states.append(padding.restore(hidden))
                hidden = padding.to_end(hidden_states[-1])
                tape = torch.cat([tape[:, : config.num_slots], hidden.to(tape.dtype)], dim=1)
            memories.append(tuple(padding.last(one, config.num_slots) for one in (hidden_tape, cell_tape)))
            if config.reading_attention:
                attentions.append(attention)
        outputs, attention = self.predict_network(hidden, tape, prediction_gates, padding.mask)
        if config.prediction_attention:
            attentions.append(attention)
        last_hidden_state = self.output_dropout(outputs.to(embeddings.dtype))

        lookback = torch.cat([state.lookback.to(embeddings.dtype), embeddings], dim=1)
        new_state = PRPNState(
            lookback=padding.last(lookback, state.lookback.shape[1]),
            distances=padding.last(distance_tape, config.num_slots),
            memories=tuple(memories),
        )
        distances = None
        if output_distances:
            distances = padding.restore_zeroed(distance_tape[:, -length:])
            gates = [padding.restore_zeroed(gates).flip(-1) for gates in (reading_gates, prediction_gates)]
        if output_attentions:
            attentions = tuple(padding.restore_zeroed(attention).flip(-1) for attention in attentions)
        return PRPNModelOutput(
            last_hidden_state=padding.restore(last_hidden_state),
            state=new_state if use_cache else None,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=attentions if output_attentions else None,
            distances=distances,
            memory_gates=torch.stack(gates) if output_distances else None,
        )

    def find_structure(
        self, embeddings: torch.Tensor, state: PRPNState, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Runs the parsing network on `embeddings` `[B, T, E]` and computes the gates of the other two networks.

        Returns the distances of the state, then of the words, `[B, S + T]`; and the gates of the memories, oldest
        first, for the reading network and for the predict network, `[B, T, S]` each.
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
            return tape, is_open, is_open
        reading_gates = memory_gates(distances, newest_first, config.resolution, config.hard)
        prediction_gates = memory_gates(next_distances, newest_first, config.resolution, config.hard)
        return tape, reading_gates.flip(-1), prediction_gates.flip(-1)


# The heads


class PRPNForCausalLM(LanguageModelHead, ParsingMixin, PRPNPreTrainedModel, RecurrentGenerationMixin):
    """A PRPN language model, which also induces constituency trees."""

    def __init__(self, config: PRPNConfig):
        super().__init__(config)
        self.model = PRPNModel(config)
        self.build_head(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        state: PRPNState | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        skip_logits: bool = False,
        **kwargs,
    ) -> PRPNCausalLMOutput | tuple:
        """Takes the arguments of `LanguageModelHead`, and those of `PRPNModel`."""
        # Not in the signature: `Trainer` would evaluate only batches that have every argument named like "label".
        shift_labels = kwargs.pop("shift_labels", None)
        outputs = self.model(input_ids, attention_mask, inputs_embeds, state, return_dict=True, **kwargs)
        hidden_states = outputs.last_hidden_state
        logits, _, cross_entropy, _ = self.predict(
            hidden_states, labels, shift_labels, attention_mask, logits_to_keep, num_items_in_batch, skip_logits
        )
        return PRPNCausalLMOutput(
            loss=cross_entropy,
            logits=logits,
            state=outputs.state,
            hidden_states=outputs.hidden_states,
            cross_entropy=cross_entropy,
            attentions=outputs.attentions,
            distances=outputs.distances,
            memory_gates=outputs.memory_gates,
        )

    @property
    def induces_trees(self) -> bool:
        """Returns whether there is a parsing network."""
        return self.config.parsing_network

    def parse(self, sentences, tokenizer=None, *, hard: bool = False, **options):
        """Returns the constituency trees that the model induces; arguments as for `ParsingMixin.parse`, and:

        Args:
            hard: build the trees from the gates at infinite temperature, the `branching_bias` `"ranges"`: a word's
                gate is open back to the last word with a larger distance (the paper's appendix).
        """
        if hard and options.setdefault("branching_bias", "ranges") != "ranges":
            raise ValueError(f'hard=True is branching_bias "ranges", not {options["branching_bias"]!r}: give one')
        return super().parse(sentences, tokenizer, **options)

    def syntactic_distances(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        state: PRPNState | None = None,
        layer: int | None = None,
    ) -> tuple[torch.Tensor, PRPNState]:
        """Returns the distances from which `parse` builds trees, `[B, T]`, 0 at padding, and the new state.

        Runs only the parsing network; the state of the other networks stays. Raises a `ValueError` if there is no
        parsing network, or if a `layer` is given.
        """
        model = self.model
        if model.parsing_network is None:
            raise ValueError("this PRPN induces no trees: it has no parsing network (parsing_network=False)")
        if layer is not None:
            raise ValueError(f"layer {layer} has no distances of its own: a PRPN has one parsing network")
        check_inputs(model, input_ids)
        embeddings = model.embeddings(input_ids)
        padding = Padding(real_tokens(attention_mask, embeddings))
        state = check_state(state, model.initial_state(len(input_ids)), embeddings.device)
        embeddings, lookback = padding.to_end(embeddings), state.lookback.to(embeddings.dtype)
        distances, _ = model.parsing_network(embeddings, lookback, padding.mask)
        lookback = padding.last(torch.cat([lookback, embeddings], dim=1), lookback.shape[1])
        return padding.restore_zeroed(distances), replace(state, lookback=lookback)

    @staticmethod
    def distances_by_layer(output: PRPNCausalLMOutput) -> torch.Tensor:
        """Returns the distances that define trees, `(1, batch_size, length)`; needs `output_distances=True`."""
        return output.distances.unsqueeze(0)


class PRPNForSequenceClassification(SequenceClassifier, PRPNPreTrainedModel):
    """A PRPN that reads one sequence, and a linear map that classifies the output at its last real token."""

    def __init__(self, config: PRPNConfig):
        super().__init__(config)
        self.model = PRPNModel(config)
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
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
