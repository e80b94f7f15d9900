"""Regularisation of the AWD-LSTM (Merity, Keskar & Socher 2018): dropout of units, words, connections; penalties."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from .heads import IGNORED_LABEL
from .state import RecurrentConfig, is_plain, owns_storage, real_tokens, state_dtype


class LockedDropout(nn.Module):
    """Variational dropout (Gal & Ghahramani 2016): one mask per sequence, shared by all its steps."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Drops units of `inputs`, `[T, B, H]` (time first), and divides the others by `1 - probability`."""
        if not self.training or self.probability == 0:
            return inputs
        keep = torch.empty_like(inputs[:1]).bernoulli_(1 - self.probability)
        return inputs * keep.div_(1 - self.probability)


def dropped_words(
    embedding: nn.Embedding, input_ids: torch.Tensor, probability: float, training: bool
) -> torch.Tensor:
    """Embeds `input_ids` and drops whole words: a dropped word is 0 everywhere in the batch.

    Returns:
        The embeddings, `[*input_ids.shape, embedding_size]`; kept words are divided by `1 - probability`.
    """
    embeddings = embedding(input_ids)
    if not training or probability == 0:
        return embeddings
    keep = torch.empty(len(embedding.weight), device=embeddings.device, dtype=embeddings.dtype)
    keep = keep.bernoulli_(1 - probability).div_(1 - probability)
    return embeddings * keep[input_ids].unsqueeze(-1)


def kept_entries(
    shape: Sequence[int], probability: float, device: torch.device, dtype: torch.dtype = torch.bool
) -> torch.Tensor:
    """Returns booleans, each false with `probability` (to within 2^-17), or zeros and ones of another dtype.

    For millions of entries, `bernoulli_` takes as long on a CPU as many steps of a recurrence. Sixteen random bits per
    entry suffice, or eight for probabilities such as 0.5.
    """
    count = math.prod(shape)
    num_bits, word = (8, torch.int8) if (probability * 256).is_integer() else (16, torch.int16)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (math.ceil(count * num_bits / 64),), device=device)
    values = words.view(word)[:count].view(shape)
    threshold = min(round(probability * (1 << num_bits)), (1 << num_bits) - 1)
    kept = torch.empty(values.shape, dtype=dtype, device=device)
    return torch.ge(values, threshold - (1 << (num_bits - 1)), out=kept)


def drop_connect(weight: torch.Tensor, probability: float, training: bool) -> torch.Tensor:
    """Drop-connect (Wan et al. 2013) as the authors of the ON-LSTM apply it to the hidden-to-hidden weight.

    In training, sets entries to 0 with `probability` (to within 2^-17) without rescaling; call it once per sequence.
    In evaluation, multiplies the weight by `1 - probability`.
    """
    if probability == 0:
        return weight
    return weight * (kept_entries(weight.shape, probability, weight.device) if training else 1 - probability)


def bind_projection(
    projection: nn.Module, inputs: torch.Tensor, weight_dropout: float = 0.0, training: bool = False
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the function that applies a projection to the hidden states of every step, with drop-connect.

    A plain `nn.Linear` (`is_plain`) runs in the precision of the states. Any other module is called at every step, in
    the dtype of the layer's `inputs`: one with hooks, an adapter, quantised or offloaded weights. If its weight cannot
    be masked, training scales as evaluation does.
    """
    dtype = state_dtype(inputs)
    if is_plain(projection):
        weight = drop_connect(projection.weight.to(dtype), weight_dropout, training)
        bias = projection.bias.to(dtype)
        return lambda hidden: F.linear(hidden.to(dtype), weight, bias).to(dtype)
    has_weight = isinstance(projection, nn.Linear) and "weight" in projection._parameters
    if training and weight_dropout > 0 and has_weight and owns_storage(projection.weight):
        dropped = {"weight": drop_connect(projection.weight, weight_dropout, training)}
        return lambda hidden: torch.func.functional_call(projection, dropped, hidden.to(inputs.dtype)).to(dtype)
    scale = 1 - weight_dropout
    return lambda hidden: projection((hidden * scale).to(inputs.dtype)).to(dtype)


def activation_penalties(
    dropped: torch.Tensor,
    raw: torch.Tensor,
    attention_mask: torch.Tensor | None,
    targets: torch.Tensor,
    is_stream: bool,
    num_items_in_batch: int | torch.Tensor | None,
    config: RecurrentConfig,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns AR and TAR of Merity et al. (2018): the mean square of the last layer's output, and of its changes.

    In a stream these are means over tokens and over pairs of neighbours. Otherwise both are sums over the labelled
    tokens, divided by their number. So accumulated batches of different lengths give the update of one batch.

    Args:
        dropped, raw: `[B, T, H]`, the output after dropout, for AR, and before dropout, for TAR.
        attention_mask, targets: `[B, T]`, 0 at padding, or `None`; -100 where nothing is predicted.
        is_stream: whether every token has a label; the label of a row's last token is in the next chunk.
        num_items_in_batch: divides the sums, as for the loss.
    """
    dtype = torch.promote_types(dropped.dtype, torch.float32)
    activations, raw = dropped.to(dtype).square(), raw.to(dtype)
    changes = (raw[:, 1:] - raw[:, :-1]).square()
    is_labelled = targets != IGNORED_LABEL
    if is_stream:
        activation, change = activations.mean(), changes.mean() if changes.numel() else changes.sum()
    else:
        pairs = is_labelled[:, :-1]
        if attention_mask is not None:
            pairs = pairs & real_tokens(attention_mask, targets)[:, 1:]
        count = (is_labelled.sum() * activations.shape[-1]).clamp(min=1)
        activation = (activations * is_labelled.unsqueeze(-1)).sum() / count
        change = (changes * pairs.unsqueeze(-1)).sum() / count
    if num_items_in_batch is not None:
        share = is_labelled.sum() / num_items_in_batch
        activation, change = activation * share, change * share
    return config.activation_regularization * activation, config.temporal_activation_regularization * change
