"""Dropout of units, words and connections (Merity, Keskar & Socher 2018), and the maps that it is applied to."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from .state import state_dtype

try:  # `nn.Linear` by the fastest of the libraries that PyTorch brings
    from onlstm_hf.fast.linear import Linear
except ImportError:
    Linear = nn.Linear


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


def recurrent_map(
    projection: nn.Module, inputs: torch.Tensor, weight_dropout: float = 0.0, training: bool = False
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function that maps a hidden state to its part of the gates at every step, with drop-connect.

    A plain `nn.Linear` is computed in the precision of the states. Any other module is called: one with hooks, an
    adapter, quantised or offloaded weights. Hooks see each step. Where the module has no weight of its own to drop
    entries of, drop-connect keeps its expectation in training, too.

    Args:
        projection: maps `[..., H]` to `[..., G]`.
        inputs: the layer's inputs, whose dtype the projection's inputs have.
        weight_dropout: probability of an entry of the weight to be dropped.
        training: whether to draw a mask, or to scale.
    """
    dtype = state_dtype(inputs)
    if is_plain(projection):
        weight = drop_connect(projection.weight.to(dtype), weight_dropout, training)
        bias = projection.bias.to(dtype)
        return lambda hidden: F.linear(hidden.to(dtype), weight, bias).to(dtype)
    if training and weight_dropout > 0 and isinstance(projection, nn.Linear) and is_ordinary(projection.weight):
        dropped = {"weight": drop_connect(projection.weight, weight_dropout, training)}
        return lambda hidden: torch.func.functional_call(projection, dropped, hidden.to(inputs.dtype)).to(dtype)
    scale = 1 - weight_dropout
    return lambda hidden: projection((hidden * scale).to(inputs.dtype)).to(dtype)


def is_plain(*modules: nn.Module) -> bool:
    """Returns whether each module is an affine map whose call only applies the weight and bias that it holds."""
    return has_no_hooks(*modules) and all(
        type(module) in (nn.Linear, Linear) and is_ordinary(module.weight) for module in modules
    )


def has_no_hooks(*modules: nn.Module) -> bool:
    """Returns whether no hook listens to the modules, and no other `forward` stands in place of theirs."""
    return all(
        "forward" not in vars(module)
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        for module in modules
    )


def is_ordinary(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor holds its numbers itself, unlike quantised and offloaded weights."""
    return not hasattr(type(tensor), "__tensor_flatten__") and tensor.device.type != "meta"


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
