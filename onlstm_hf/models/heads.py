"""Heads of the models: the next token's logits and loss, mixtures of softmaxes, penalties, classifiers."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from .dropout import Linear, LockedDropout, is_plain
from .state import RecurrentConfig, check_vocabulary, real_tokens

try:  # the same loss in blocks, without ever holding all logits
    from onlstm_hf.fast.vocabulary_loss import projected_next_token_loss
except ImportError:
    projected_next_token_loss = None

IGNORED_LABEL = -100
# A step on a CPU takes longer with more rows, so sequences of similar length run together, in this many groups.
NUM_LENGTH_GROUPS = 4


# Predicting the next token


def next_token_targets(
    labels: torch.Tensor | None,
    shift_labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    shape: tuple[int, int],
) -> torch.Tensor:
    """The token that should follow each position, -100 where none should.

    Args:
        labels: the tokens themselves; what follows padding or the last position becomes -100.
        shift_labels: labels that are shifted already; they replace `labels`.
        attention_mask: 0 at padding.
        shape: `(batch_size, sequence_length)`, that of all of them.

    Raises:
        ValueError: if the labels are not of that shape.
    """
    for name, given in (("labels", labels), ("shift_labels", shift_labels)):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, one for each of the logits, not {list(given.shape)}")
    if shift_labels is not None:
        return shift_labels.long()
    targets = F.pad(labels[:, 1:].long(), (0, 1), value=IGNORED_LABEL)
    return targets if attention_mask is None else targets.masked_fill(attention_mask == 0, IGNORED_LABEL)


def next_token_loss(
    logits: torch.Tensor,
    shift_labels: torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None = None,
    **others,
) -> torch.Tensor:
    """Mean cross-entropy of predicting the next token, in nats.

    Args:
        logits: `[B, T, V]`.
        shift_labels: `[B, T]`, the token that should follow each position; -100 is ignored.
        num_items_in_batch: divides the sum; by default the number of labels that are not ignored.
        others: further arguments of Transformers' loss functions; not used.

    Returns:
        A scalar in float32 (float64 for float64 logits). Where every label is ignored it is NaN, as PyTorch's mean of
        nothing is, and has the gradient 0.

    Raises:
        ValueError: if a label is outside the vocabulary.
    """
    check_vocabulary("labels", shift_labels.where(shift_labels != IGNORED_LABEL, 0), logits.shape[-1])
    labels = shift_labels.reshape(-1).to(logits.device)
    logits = logits.reshape(-1, logits.shape[-1])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if num_items_in_batch is None:
        return F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
    return F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="sum") / num_items_in_batch


class LanguageModelHead:
    """The decoder of a model that predicts the next word: `lm_head`, and `softmax_mixture` or `None`."""

    # The `loss_function` until a user sets another one.
    _loss_function = staticmethod(next_token_loss)
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    def build_head(self, config: RecurrentConfig) -> None:
        """Adds the decoder, and the mixture of softmaxes where the configuration asks for one."""
        is_mixture = config.num_softmaxes > 1
        self.softmax_mixture = SoftmaxMixture(config.output_size, config) if is_mixture else None
        self.lm_head = Linear(config.embedding_size if is_mixture else config.output_size, config.vocab_size)

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Scores of the words, `(batch_size, sequence_length, vocab_size)`, from `last_hidden_state`.

        Up to a constant for each position these are log probabilities; a mixture of softmaxes gives these themselves.
        """
        if self.softmax_mixture is None:
            return self.lm_head(hidden_states)
        return self.softmax_mixture(hidden_states, self.lm_head)

    def predict(
        self,
        hidden_states: torch.Tensor,
        labels: torch.Tensor | None,
        shift_labels: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        num_items_in_batch: int | torch.Tensor | None,
        skip_logits: bool,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Logits, targets and cross-entropy of the hidden states `[B, T, H]`; `None` in place of what there is not.

        Without logits the installed package computes the loss in blocks, from the head's weight; a head with hooks,
        adapters or quantised weights and a loss function of the user's own need the logits.
        """
        if labels is None and shift_labels is None:
            if skip_logits:
                raise ValueError("skip_logits leaves only the loss, which needs labels or shift_labels")
            return self.logits(hidden_states), None, None
        targets = next_token_targets(labels, shift_labels, attention_mask, hidden_states.shape[:2])
        is_ours = self.loss_function is next_token_loss and is_plain(self.lm_head)
        if skip_logits and is_ours and projected_next_token_loss is not None:
            inputs, log_priors = hidden_states, None
            if self.softmax_mixture is not None:
                inputs, log_priors = self.softmax_mixture.components(hidden_states)
            weight, bias = self.lm_head.weight, self.lm_head.bias
            check_vocabulary("labels", targets.where(targets != IGNORED_LABEL, 0), len(weight))
            return (
                None,
                targets,
                projected_next_token_loss(inputs, weight, bias, targets, num_items_in_batch, log_priors),
            )
        logits = self.logits(hidden_states)
        cross_entropy = self.loss_function(
            logits=logits,
            labels=labels,
            vocab_size=logits.shape[-1],
            num_items_in_batch=num_items_in_batch,
            shift_labels=targets,
        )
        return None if skip_logits else logits, targets, cross_entropy


def activation_penalties(
    dropped: torch.Tensor,
    raw: torch.Tensor,
    targets: torch.Tensor,
    attention_mask: torch.Tensor | None,
    is_stream: bool,
    num_items_in_batch: int | torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """AR and TAR of Merity et al. (2018): the mean square of the last layer's output, and that of its changes.

    In a stream these are means over tokens and over neighbours. Elsewhere both are sums over the tokens that predict
    a word, divided by their number: so batches of unlike lengths that are added up give the update of one batch.

    Args:
        dropped, raw: `[B, T, H]`, the output after dropout, for AR, and before dropout, for TAR.
        targets, attention_mask: `[B, T]`, -100 where nothing is predicted; 0 at padding, or `None`.
        is_stream: whether every token predicts a word, those at the ends of rows that of the next chunk.
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
            pairs = pairs & real_tokens(attention_mask, targets.shape, pairs.device)[:, 1:]
        count = (is_labelled.sum() * activations.shape[-1]).clamp(min=1)
        activation = (activations * is_labelled.unsqueeze(-1)).sum() / count
        change = (changes * pairs.unsqueeze(-1)).sum() / count
    if num_items_in_batch is None:
        return activation, change
    share = is_labelled.sum() / num_items_in_batch
    return activation * share, change * share


class SoftmaxMixture(nn.Module):
    """A mixture of softmaxes (Yang, Dai, Salakhutdinov & Cohen 2018).

    With a single softmax the log probabilities of all contexts are, up to a constant for each context, a matrix of a
    rank that the embedding size bounds. A mixture has no such bound:

        p(x | h) = sum_k prior_k(h) softmax(W tanh(U_k h) + b)_x        prior(h) = softmax(V h)

    `W` and `b` are those of the head, which all components share.

    Args:
        input_size: units of `h`.
        config: with `num_softmaxes`, `embedding_size` (the units of a component) and `latent_dropout`.
    """

    def __init__(self, input_size: int, config: RecurrentConfig):
        super().__init__()
        self.num_softmaxes = config.num_softmaxes
        self.latent_projection = Linear(input_size, config.num_softmaxes * config.embedding_size)
        self.prior_projection = Linear(input_size, config.num_softmaxes, bias=False)
        self.latent_dropout = LockedDropout(config.latent_dropout)

    def components(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of the head `[B, T, K, E]`, and log priors `[B, T, K]` in float32 at least, of states `[B, T, H]`."""
        latents = self.latent_projection(hidden_states).tanh().transpose(0, 1)
        latents = self.latent_dropout(latents).transpose(0, 1).unflatten(-1, (self.num_softmaxes, -1))
        return latents, _log_softmax(self.prior_projection(hidden_states))

    def forward(self, hidden_states: torch.Tensor, head: nn.Module) -> torch.Tensor:
        """Log probabilities of all words, `[B, T, V]` in float32 at least; one component is held at a time.

        Args:
            hidden_states: `[B, T, H]`.
            head: maps `[..., E]` to the scores `[..., V]`.
        """
        latents, log_priors = self.components(hidden_states)
        mixed = None
        for latent, log_prior in zip(latents.unbind(-2), log_priors.unbind(-1), strict=True):
            component = _log_softmax(head(latent)) + log_prior.unsqueeze(-1)
            mixed = component if mixed is None else torch.logaddexp(mixed, component)
        return mixed


def _log_softmax(scores: torch.Tensor) -> torch.Tensor:
    return scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))


# Classifying sequences


def last_real_outputs(hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Hidden states `[B, H]` at the last real token of each row of `[B, T, H]`."""
    if attention_mask is None:
        return hidden_states[:, -1]
    real = real_tokens(attention_mask, hidden_states.shape[:2], hidden_states.device)
    last = (real * torch.arange(real.shape[1], device=real.device)).argmax(dim=1)
    return hidden_states[torch.arange(last.shape[0], device=last.device), last]


def class_labels(labels: torch.Tensor) -> torch.Tensor:
    """Classes of any integer type as 64-bit integers, as losses need them; numbers of regression as they are."""
    return labels if labels.is_floating_point() else labels.long()


def refuse_pair(model: nn.Module, input_ids_pair: torch.Tensor | None, token_type_ids: torch.Tensor | None) -> None:
    """Raises a `ValueError` if a classifier of single sequences is given a pair."""
    if input_ids_pair is not None or (token_type_ids is not None and token_type_ids.any()):
        raise ValueError(
            f"{type(model).__name__} classifies single sequences, and this is a pair: the classes named "
            "ForSequencePairClassification compare two"
        )


# Classifying pairs of sequences


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
        belongs = mask & (token_type_ids == side)
        lengths = belongs.sum(dim=1)
        if not lengths.all():
            raise ValueError(
                f"pair {lengths.argmin().item()} has no tokens of type {side}: a pair needs both sequences"
            )
        order = belongs.int().argsort(dim=1, descending=True, stable=True)[:, : lengths.max()]
        sides.append((input_ids.gather(1, order), belongs.gather(1, order)))
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
