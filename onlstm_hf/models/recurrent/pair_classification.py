"""Classifying pairs of sequences: one encoder for both sides, and a small network that compares the two encodings."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.utils import ModelOutput, can_return_tuple

from .configuration import RecurrentConfig
from .language_model import RecurrentModel, RecurrentPreTrainedModel

# On a CPU the time of a step grows with its rows, so sequences of similar length run together, in this many groups.
NUM_LENGTH_GROUPS = 4


@dataclass
class SequencePairClassificationOutput(ModelOutput):
    r"""
    Output of a model that classifies pairs of sequences.

    Args:
        loss (`torch.FloatTensor` of shape `()`, *optional*, returned when `labels` are given):
            Mean cross-entropy in nats.
        logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`):
            Scores of the labels before the softmax.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None


class PairClassifier(nn.Module):
    """Compares the encodings `u` and `v` of two sequences: one hidden layer over [u; v; u * v; |u - v|].

    Args:
        size: units `H` of an encoding, and of the hidden layer.
        num_labels: number of classes.
        dropout: before both affine maps.
    """

    def __init__(self, size: int, num_labels: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(4 * size, size)
        self.output = nn.Linear(size, num_labels)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """`left` and `right` `[B, H]` to logits `[B, num_labels]`."""
        features = torch.cat([left, right, left * right, (left - right).abs()], dim=-1)
        return self.output(self.dropout(F.elu(self.hidden(self.dropout(features)))))


def classification_loss(labels: torch.Tensor, pooled_logits: torch.Tensor, **others) -> torch.Tensor:
    """Mean cross-entropy of labels `[B]` and logits `[B, num_labels]`; takes what Transformers' losses take."""
    return F.cross_entropy(pooled_logits.float(), labels)


class ForSequencePairClassification(RecurrentPreTrainedModel):
    """A siamese classifier: both sequences of a pair are encoded by the same model and then compared.

    A subclass computes `encode(input_ids, attention_mask)` and builds `self.classifier`, a `PairClassifier`.

    Raises:
        ValueError: if the configuration's `problem_type` is another one than single-label classification.
    """

    auto_class_name = "AutoModelForSequenceClassification"
    # The `loss_function` until a user sets another one.
    _loss_function = staticmethod(classification_loss)
    classifier: PairClassifier

    def __init__(self, config: RecurrentConfig):
        if config.problem_type not in (None, "single_label_classification") or config.num_labels < 2:
            raise ValueError(
                f"{type(self).__name__} gives each pair one of two labels or more, and cannot do "
                f"problem_type={config.problem_type!r} with num_labels={config.num_labels}"
            )
        super().__init__(config)

    def encode(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Encodes each sequence.

        Args:
            input_ids: `(num_sequences, sequence_length)`.
            attention_mask: the same shape, 0 at padding on either side; `None` where there is none.

        Returns:
            `(num_sequences, size)`.
        """
        raise NotImplementedError

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        input_ids_pair: torch.LongTensor | None = None,
        attention_mask_pair: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
    ) -> SequencePairClassificationOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, the first sequence of every pair; with `token_type_ids` both.
            attention_mask: the same shape, 1 for real tokens and 0 for padding on either side.
            input_ids_pair: `(batch_size, sequence_length_pair)`, the second sequences.
            attention_mask_pair: the same shape as `input_ids_pair`.
            token_type_ids: `(batch_size, sequence_length)`, instead of `input_ids_pair`: 0 at the tokens of the first
                sequence of a pair and 1 at those of the second, as tokenizers join the two.
            labels: `(batch_size,)`, the class of every pair, from 0 to `config.num_labels - 1`.

        With `return_dict=False` it returns a tuple. The loss is that of `loss_function`, which can be set.

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
        both = _stack_sides((input_ids, attention_mask), (input_ids_pair, attention_mask_pair))
        # Not by `chunk`, for whose number of parts an exporter fixes the batch size.
        left, right = self.encode(*both).unflatten(0, (2, -1))
        logits = self.classifier(left, right)
        loss = None
        if labels is not None:
            if list(labels.shape) != [len(input_ids)]:
                raise ValueError(f"labels must be [batch_size={len(input_ids)}], not {list(labels.shape)}")
            on_cpu = labels.device.type == "cpu" and not torch.compiler.is_compiling()
            if on_cpu and ((labels < 0) | (labels >= self.config.num_labels)).any():
                raise ValueError(f"labels must lie between 0 and {self.config.num_labels - 1}, not {labels.tolist()}")
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequencePairClassificationOutput(loss=loss, logits=logits)


class RecurrentForSequencePairClassification(ForSequencePairClassification):
    """A siamese classifier around a recurrent `self.model`, whose output after the last real token is the encoding."""

    model: RecurrentModel

    def encode(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        if attention_mask is None or input_ids.device.type != "cpu" or torch.compiler.is_compiling():
            return self._last_outputs(input_ids, attention_mask)
        order = attention_mask.sum(dim=1).argsort()
        encodings = []
        for rows in order.chunk(NUM_LENGTH_GROUPS):
            mask = attention_mask[rows].bool()
            # Columns that are padding in all these rows are left out, and the mask where no padding is left.
            used = mask.any(dim=0)
            used[:1] |= ~used.any()
            mask = mask[:, used]
            encodings.append(self._last_outputs(input_ids[rows][:, used], None if mask.all() else mask))
        return torch.cat(encodings)[order.argsort()]

    def _last_outputs(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        # Padding leaves the state, and so the output, as it is.
        outputs = self.model(input_ids, attention_mask=attention_mask, use_cache=False, return_dict=True)
        return outputs.last_hidden_state[:, -1]


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
    sides = []
    for side in (0, 1):
        belongs = mask.bool() & (token_type_ids == side)
        lengths = belongs.sum(dim=1)
        if not lengths.all():
            raise ValueError(
                f"pair {lengths.argmin().item()} has no tokens of type {side}: a pair needs both sequences"
            )
        order = belongs.int().argsort(dim=1, descending=True, stable=True)[:, : lengths.max()]
        sides.append((input_ids.gather(1, order), belongs.gather(1, order).to(mask.dtype)))
    return sides


def _stack_sides(
    *sides: tuple[torch.LongTensor, torch.Tensor | None],
) -> tuple[torch.LongTensor, torch.Tensor | None]:
    """Ids and masks of both sides below each other, padded to the same length; no mask where nothing is padded."""
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
