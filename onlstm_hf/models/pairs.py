"""Classification of pairs of sequences, as for logical inference: both sides encoded by one model, then compared."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from .state import RecurrentConfig, real_tokens

# A step on a CPU takes longer with more rows, so sequences of similar length run together, in this many groups.
NUM_LENGTH_GROUPS = 4


@dataclass
class SequencePairClassificationOutput(ModelOutput):
    """Scores of the labels before the softmax, `(batch_size, num_labels)`, and their mean cross-entropy in nats."""

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None


class PairClassifier(nn.Module):
    """Compares the encodings `u` and `v` of two sequences: one hidden layer over [u; v; u * v; |u - v|].

    Args:
        size: units `H` of an encoding, and of the hidden layer.
        config: with `num_labels` and `classifier_dropout`, before both affine maps.

    Raises:
        ValueError: if the configuration asks for anything but single-label classification.
    """

    def __init__(self, size: int, config: RecurrentConfig):
        if config.problem_type not in (None, "single_label_classification") or config.num_labels < 2:
            raise ValueError(
                "a classifier of pairs gives each pair one of two labels or more, and cannot do "
                f"problem_type={config.problem_type!r} with num_labels={config.num_labels}"
            )
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.hidden = nn.Linear(4 * size, size)
        self.output = nn.Linear(size, config.num_labels)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """`left` and `right` `[B, H]` to logits `[B, num_labels]`."""
        features = torch.cat([left, right, left * right, (left - right).abs()], dim=-1)
        return self.output(self.dropout(F.elu(self.hidden(self.dropout(features)))))


def classification_loss(labels: torch.Tensor, pooled_logits: torch.Tensor, **others) -> torch.Tensor:
    """Mean cross-entropy of labels `[B]` and logits `[B, num_labels]`; takes the arguments of Transformers' losses."""
    return F.cross_entropy(pooled_logits.float(), labels.long())


def check_classes(labels: torch.Tensor, batch_size: int, num_labels: int) -> None:
    """Raises a `ValueError` unless there is one class from 0 to `num_labels - 1` for each pair."""
    if list(labels.shape) != [batch_size]:
        raise ValueError(f"labels must be [batch_size={batch_size}], not {list(labels.shape)}")
    on_cpu = labels.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_cpu and ((labels < 0) | (labels >= num_labels)).any():
        raise ValueError(f"labels must lie between 0 and {num_labels - 1}, not {labels.tolist()}")


def stacked_sides(
    input_ids: torch.LongTensor | None,
    attention_mask: torch.Tensor | None,
    input_ids_pair: torch.LongTensor | None,
    attention_mask_pair: torch.Tensor | None,
    token_type_ids: torch.LongTensor | None,
) -> tuple[torch.LongTensor, torch.Tensor | None]:
    """Ids and masks of both sides of pairs below each other, `[2 * B, T]`; no mask where nothing is padded.

    Args:
        input_ids: `[B, T]`, the first sequence of every pair; with `token_type_ids` both.
        attention_mask: the same shape, 0 at padding.
        input_ids_pair: `[B, T']`, the second sequences.
        attention_mask_pair: the same shape.
        token_type_ids: `[B, T]`, 0 at the tokens of the first sequence and 1 at those of the second.

    Raises:
        ValueError: if a side is missing, or the inputs do not fit together.
    """
    if input_ids is not None and input_ids_pair is None and token_type_ids is not None:
        (input_ids, attention_mask), (input_ids_pair, attention_mask_pair) = _split_sides(
            input_ids, attention_mask, token_type_ids
        )
    if input_ids is None or input_ids_pair is None:
        raise ValueError("a pair has two sides: give input_ids and input_ids_pair, or both joined, token_type_ids")
    if input_ids.dim() != 2 or input_ids_pair.dim() != 2 or input_ids.shape[0] != input_ids_pair.shape[0]:
        raise ValueError(
            "input_ids and input_ids_pair must be [batch_size, sequence_length] with the same batch_size, not "
            f"{list(input_ids.shape)} and {list(input_ids_pair.shape)}"
        )
    sides = (input_ids, attention_mask), (input_ids_pair, attention_mask_pair)
    length = max(ids.shape[1] for ids, _ in sides)
    all_ids, all_masks = [], []
    for ids, mask in sides:
        if mask is not None and mask.shape != ids.shape:
            raise ValueError(f"a mask must have the shape of its input, {list(ids.shape)}, not {list(mask.shape)}")
        missing = (0, length - ids.shape[1])
        all_ids.append(F.pad(ids, missing))
        all_masks.append(F.pad(torch.ones_like(ids) if mask is None else mask, missing))
    is_padded = any(mask is not None or ids.shape[1] < length for ids, mask in sides)
    return torch.cat(all_ids), torch.cat(all_masks) if is_padded else None


def _split_sides(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, token_type_ids: torch.LongTensor
) -> list[tuple[torch.LongTensor, torch.Tensor]]:
    """Ids and masks of both sides of joined pairs, padded on the right."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    if not input_ids.shape == mask.shape == token_type_ids.shape:
        raise ValueError(
            f"attention_mask and token_type_ids must have the shape of input_ids, {list(input_ids.shape)}, not "
            f"{list(mask.shape)} and {list(token_type_ids.shape)}"
        )
    mask, sides = real_tokens(mask, input_ids.shape, input_ids.device), []
    for side in (0, 1):
        is_on_side = mask & (token_type_ids == side)
        lengths = is_on_side.sum(dim=1)
        if not lengths.all():
            raise ValueError(
                f"pair {lengths.argmin().item()} has no tokens of type {side}: a pair needs both sequences"
            )
        order = is_on_side.int().argsort(dim=1, descending=True, stable=True)[:, : lengths.max()]
        sides.append((input_ids.gather(1, order), is_on_side.gather(1, order)))
    return sides


def encode_by_length(
    encode: Callable[[torch.LongTensor, torch.Tensor | None], torch.Tensor],
    input_ids: torch.LongTensor,
    attention_mask: torch.Tensor | None,
) -> torch.Tensor:
    """Encodings `[N, H]` of sequences `[N, T]` by a function of ids and mask, on a CPU in groups of similar length."""
    if attention_mask is None or input_ids.device.type != "cpu" or torch.compiler.is_compiling():
        return encode(input_ids, attention_mask)
    attention_mask = real_tokens(attention_mask, input_ids.shape, input_ids.device)
    order = attention_mask.sum(dim=1).argsort()
    encodings = []
    for rows in order.chunk(NUM_LENGTH_GROUPS):
        mask = attention_mask[rows]
        # Columns that are padding in all these rows are left out, and the mask where no padding is left.
        used = mask.any(dim=0)
        used[:1] |= ~used.any()
        mask = mask[:, used]
        encodings.append(encode(input_ids[rows][:, used], None if mask.all() else mask))
    return torch.cat(encodings)[order.argsort()]
