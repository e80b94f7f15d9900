"""The dropouts of the AWD-LSTM (Merity, Keskar & Socher 2018), which the ON-LSTM is trained with."""

import math
from collections.abc import Sequence

import torch
from torch import nn


class LockedDropout(nn.Module):
    """Variational dropout (Gal & Ghahramani 2016): one mask for all steps of a sequence, another for each sequence.

    Args:
        probability: how often a unit is set to 0; the rest is divided by `1 - probability`.
    """

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Drops units of `inputs`, `[T, B, H]` (time first)."""
        if not self.training or self.probability == 0:
            return inputs
        keep = torch.empty_like(inputs[:1]).bernoulli_(1 - self.probability)
        return inputs * keep.div_(1 - self.probability)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


class ElementDropout(nn.Module):
    """Ordinary dropout, another mask for every step: `torch.nn.Dropout` at a fraction of its cost on a CPU.

    Args:
        probability: how often an element is set to 0; the rest is divided by `1 - probability`.
    """

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Drops elements of `inputs`, of any shape."""
        mask = self.mask(inputs.shape, inputs.device)
        return inputs if mask is None else inputs * mask.to(inputs.dtype)

    def mask(self, shape: Sequence[int], device: torch.device) -> torch.Tensor | None:
        """What to multiply a tensor of that shape with, `None` where nothing is dropped."""
        if not self.training or self.probability == 0:
            return None
        return kept_entries(shape, self.probability, device, torch.float32).div_(1 - self.probability)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


def dropped_words(
    embedding: nn.Embedding, input_ids: torch.Tensor, probability: float, training: bool
) -> torch.Tensor:
    """Embeds `input_ids`, dropping whole words: a dropped word is 0 wherever it stands in the batch.

    Returns:
        The embeddings, `[*input_ids.shape, embedding_size]`; what is kept is divided by `1 - probability`.
    """
    embeddings = embedding(input_ids)
    if not training or probability == 0:
        return embeddings
    keep = torch.empty(len(embedding.weight), device=embeddings.device, dtype=embeddings.dtype)
    keep = keep.bernoulli_(1 - probability).div_(1 - probability)
    return embeddings * keep[input_ids].unsqueeze(-1)


def drop_connect(weight: torch.Tensor, probability: float, training: bool) -> torch.Tensor:
    """Drop-connect (Wan et al. 2013) as the authors of the ON-LSTM apply it to the hidden-to-hidden weight.

    In training entries are set to 0 with `probability` (to within 2^-17), without rescaling (call it once per
    sequence); in evaluation the weight is multiplied by `1 - probability`.
    """
    if probability == 0:
        return weight
    if not training:
        return weight * (1 - probability)
    return weight * kept_connections(weight, probability)


def drop_connect_scale(before: float, after: float) -> float:
    """By what to multiply a weight whose probability in `drop_connect` changes: in evaluation it counts as before."""
    return (1 - before) / (1 - after)


def kept_connections(weight: torch.Tensor, probability: float) -> torch.Tensor:
    """What `drop_connect` keeps in training: booleans of the weight's shape, each false with `probability`."""
    return kept_entries(weight.shape, probability, weight.device)


def kept_entries(
    shape: Sequence[int], probability: float, device: torch.device, dtype: torch.dtype = torch.bool
) -> torch.Tensor:
    """Booleans of any shape, each false with `probability` (to within 2^-17), or zeros and ones of another dtype.

    For millions of entries `bernoulli_` takes as long on a CPU as many steps of a recurrence. Sixteen random bits are
    enough for each, and eight for probabilities such as 0.5.
    """
    count = math.prod(shape)
    num_bits, word = (8, torch.int8) if (probability * 256).is_integer() else (16, torch.int16)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (math.ceil(count * num_bits / 64),), device=device)
    values = words.view(word)[:count].view(shape)
    threshold = min(round(probability * (1 << num_bits)), (1 << num_bits) - 1)
    kept = torch.empty(values.shape, dtype=dtype, device=device)
    return torch.ge(values, threshold - (1 << (num_bits - 1)), out=kept)
