"""Heads of the models: next-token prediction, mixtures of softmaxes, classification of sequences and pairs."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.loss.loss_utils import ForSequenceClassificationLoss
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .state import Linear, RecurrentConfig, check_vocabulary, is_plain, real_tokens

try:  # the same loss in blocks, without ever holding all logits
    from onlstm_hf.fast.vocabulary_loss import projected_next_token_loss
except ImportError:
    projected_next_token_loss = None

IGNORED_LABEL = -100
# On a CPU steps take longer with more rows, so sequences are encoded in this many groups of similar length.
NUM_LENGTH_GROUPS = 4


# Predicting the next token


def kept_positions(tensor: torch.Tensor | None, logits_to_keep: int | torch.Tensor) -> torch.Tensor | None:
    """Returns the entries of `[B, T, ...]` at the positions whose logits are computed; `None` for `None`."""
    kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
    return None if tensor is None else tensor[:, kept]


def next_token_targets(
    labels: torch.Tensor | None,
    shift_labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    shape: tuple[int, int],
) -> torch.Tensor:
    """Returns the label of each position, its next token: -100 at padding and at the end.

    `shift_labels` are already the next tokens. Labels of another shape than `shape` are a `ValueError`.
    """
    for name, given in (("labels", labels), ("shift_labels", shift_labels)):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, one for each of the logits, not {list(given.shape)}")
    if shift_labels is not None:
        return shift_labels.long()
    targets = F.pad(labels[:, 1:].long(), (0, 1), value=IGNORED_LABEL)
    return targets if attention_mask is None else targets.masked_fill(attention_mask == 0, IGNORED_LABEL)


def next_token_loss(
    logits: torch.Tensor, shift_labels: torch.Tensor, num_items_in_batch: int | torch.Tensor | None = None, **unused
) -> torch.Tensor:
    """Returns the mean cross-entropy of logits `[B, T, V]` in nats, in float32 or better; NaN without labels.

    Args:
        shift_labels: `[B, T]`, the next token of each position; -100 is ignored.
        num_items_in_batch: divides the sum; by default the number of labels that are not ignored.
        unused: further arguments of Transformers' loss functions.
    """
    check_vocabulary("labels", shift_labels.where(shift_labels != IGNORED_LABEL, 0), logits.shape[-1])
    labels = shift_labels.reshape(-1).to(logits.device)
    logits = logits.reshape(-1, logits.shape[-1])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if num_items_in_batch is None:
        return F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
    return F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="sum") / num_items_in_batch


class LanguageModelHead:
    """Decoder of a language model: `lm_head`, and `softmax_mixture` or `None`.

    `forward` takes these arguments and those of the model without the head:

    Args:
        labels: `(batch_size, sequence_length)`, usually the `input_ids`; they are shifted here. -100 and labels after
            padding are ignored.
        shift_labels: shifted labels, instead of `labels`: entry `t` is the next token after token `t`. For streams of
            text, where the label of a chunk's last token is the next chunk's first token.
        logits_to_keep: compute the logits of this many last positions only (0: all), with labels for these.
        num_items_in_batch: divide the summed loss by this instead of the number of labels (`Trainer` passes it).
        skip_logits: return no logits; with the package installed they are never all in memory, which saves time, too.
        return_dict: return a tuple without `None`s if false.

    `loss_function` computes the cross-entropy. Users can set it, as in any model of Transformers; it gets both the
    `labels` and the `shift_labels` made of them.
    """

    auto_class_name = "AutoModelForCausalLM"
    _loss_function = staticmethod(next_token_loss)
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # `Trainer` then shifts the labels when it smooths them, and pipelines generate text with the model.
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[cls.__name__] = cls.__name__

    def build_head(self, config: RecurrentConfig) -> None:
        """Adds the decoder, and the mixture of softmaxes where the configuration asks for one."""
        is_mixture = config.num_softmaxes > 1
        self.softmax_mixture = SoftmaxMixture(config) if is_mixture else None
        self.lm_head = Linear(config.embedding_size if is_mixture else config.output_size, config.vocab_size)

    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns the scores of the words, `(batch_size, sequence_length, vocab_size)`, from `last_hidden_state`."""
        if self.softmax_mixture is None:
            return self.lm_head(hidden_states)
        return self.softmax_mixture(hidden_states, self.lm_head)

    def predict(
        self,
        hidden_states: torch.Tensor,
        labels: torch.Tensor | None,
        shift_labels: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        logits_to_keep: int | torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
        skip_logits: bool,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, int | torch.Tensor | None]:
        """Returns logits, labels, cross-entropy and its divisor for hidden states `[B, T, H]`; `None` if not computed.

        With `skip_logits` the installed package computes the loss in blocks. A head that is no plain `nn.Linear`, or
        another loss function, needs all logits.
        """
        hidden_states = kept_positions(hidden_states, logits_to_keep)
        if labels is None and shift_labels is None:
            if skip_logits:
                raise ValueError("skip_logits=True computes only the loss, which needs labels or shift_labels")
            return self.logits(hidden_states), None, None, None
        mask = kept_positions(attention_mask, logits_to_keep)
        targets = next_token_targets(labels, shift_labels, mask, hidden_states.shape[:2])
        if num_items_in_batch is not None and shift_labels is None:
            # `Trainer` counts all labels but the first of each row. Those after left padding are no targets.
            counted, used = ((part != IGNORED_LABEL).sum().clamp(min=1) for part in (labels[:, 1:], targets))
            num_items_in_batch = num_items_in_batch * used / counted
        is_ours = self.loss_function is next_token_loss and is_plain(self.lm_head)
        if skip_logits and is_ours and projected_next_token_loss is not None:
            inputs, log_priors = hidden_states, None
            if self.softmax_mixture is not None:
                inputs, log_priors = self.softmax_mixture.components(hidden_states)
            weight, bias = self.lm_head.weight, self.lm_head.bias
            check_vocabulary("labels", targets.where(targets != IGNORED_LABEL, 0), len(weight))
            loss = projected_next_token_loss(inputs, weight, bias, targets, num_items_in_batch, log_priors)
            return None, targets, loss, num_items_in_batch
        logits = self.logits(hidden_states)
        cross_entropy = self.loss_function(
            logits=logits,
            labels=labels,
            vocab_size=logits.shape[-1],
            num_items_in_batch=num_items_in_batch,
            shift_labels=targets,
        )
        return None if skip_logits else logits, targets, cross_entropy, num_items_in_batch


class SoftmaxMixture(nn.Module):
    """A mixture of softmaxes (Yang, Dai, Salakhutdinov & Cohen 2018).

    The embedding size bounds the rank of a single softmax's log probabilities, but not that of a mixture's:

        p(x | h) = sum_k prior_k(h) softmax(W tanh(U_k h) + b)_x        prior(h) = softmax(V h)

    `W` and `b` are those of the head, which all components share. A component has `config.embedding_size` units.
    """

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.num_softmaxes = config.num_softmaxes
        self.latent_projection = Linear(config.output_size, config.num_softmaxes * config.embedding_size)
        self.prior_projection = Linear(config.output_size, config.num_softmaxes, bias=False)
        self.latent_dropout = nn.Dropout1d(config.latent_dropout)  # one mask for all steps of a sequence

    def components(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns head inputs `[B, T, K, E]` and log priors `[B, T, K]` (float32 or better) of states `[B, T, H]`."""
        latents = self.latent_dropout(self.latent_projection(hidden_states).tanh().transpose(1, 2)).transpose(1, 2)
        return latents.unflatten(-1, (self.num_softmaxes, -1)), _log_softmax(self.prior_projection(hidden_states))

    def forward(self, hidden_states: torch.Tensor, head: nn.Module) -> torch.Tensor:
        """Returns the log probabilities of all words, `[B, T, V]` in float32 or better, from states `[B, T, H]`."""
        latents, log_priors = self.components(hidden_states)
        mixed = None
        for latent, log_prior in zip(latents.unbind(-2), log_priors.unbind(-1), strict=True):
            component = _log_softmax(head(latent)) + log_prior.unsqueeze(-1)
            mixed = component if mixed is None else torch.logaddexp(mixed, component)
        return mixed


def _log_softmax(scores: torch.Tensor) -> torch.Tensor:
    return scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))


# Classifying sequences


class SequenceClassifier:
    """Classifier of single sequences: `score`, a linear map of the output of `model` at the last real token.

    `forward` takes these arguments:

    Args:
        input_ids, attention_mask, inputs_embeds: as for the model without the head.
        token_type_ids: `(batch_size, sequence_length)`, all 0; some tokenizers return them.
        input_ids_pair: refused, as these models read single sequences.
        labels: depend on `config.problem_type` (inferred if `None`):
            - `"single_label_classification"`: the classes, `(batch_size,)`;
            - `"multi_label_classification"`: 0 or 1 for each class, `(batch_size, num_labels)`;
            - `"regression"`: numbers, `(batch_size,)` or `(batch_size, num_labels)`.
        kwargs: further arguments of the model without the head, and `return_dict`: whether to return a
            `SequenceClassifierOutput` (default) or a tuple without `None`s.

    Raises:
        ValueError: if the inputs are a pair, or missing, empty, outside the vocabulary, or do not fit together.
    """

    auto_class_name = "AutoModelForSequenceClassification"
    # The loss is a mean over the batch: `Trainer` divides it where it accumulates gradients.
    accepts_loss_kwargs = False


def check_single_sequences(
    model: PreTrainedModel,
    input_ids: torch.LongTensor | None,
    attention_mask: torch.Tensor | None,
    input_ids_pair: torch.LongTensor | None,
    token_type_ids: torch.LongTensor | None,
) -> None:
    """Raises a `ValueError` for pairs, as two inputs or joined; warns of padding without a mask."""
    if input_ids is not None:
        model.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
    if input_ids_pair is not None or (token_type_ids is not None and token_type_ids.any()):
        raise ValueError(f"{type(model).__name__} takes no pairs: use its class ForSequencePairClassification")


def class_loss(model: PreTrainedModel, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Returns the loss for `config.problem_type` of logits `[B, num_labels]`; classes may have any integer dtype."""
    is_number = labels.is_floating_point() or model.config.problem_type == "multi_label_classification"
    labels = labels.float() if is_number else labels.long()
    return model.loss_function(labels=labels, pooled_logits=logits.float(), config=model.config)


# Classifying pairs of sequences, as for logical inference


class PairClassifier(nn.Module):
    """Compares the encodings `u` and `v` `[B, H]` of two sequences: one hidden layer over [u; v; u * v; |u - v|].

    Raises:
        ValueError: if the configuration asks for anything but single-label classification.
    """

    def __init__(self, size: int, config: RecurrentConfig):
        if config.problem_type not in (None, "single_label_classification") or config.num_labels < 2:
            given = f"problem_type={config.problem_type!r} with num_labels={config.num_labels}"
            raise ValueError(f"a classifier of pairs gives each pair one of two labels or more, not {given}")
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.hidden = nn.Linear(4 * size, size)
        self.output = nn.Linear(size, config.num_labels)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """`left` and `right` `[B, H]` to logits `[B, num_labels]`."""
        features = torch.cat([left, right, left * right, (left - right).abs()], dim=-1)
        return self.output(self.dropout(F.elu(self.hidden(self.dropout(features)))))


class SequencePairClassifier:
    """Classifier of pairs: `model` encodes both sequences, and `classifier`, a `PairClassifier`, compares them.

    `forward` takes the arguments of `stacked_sides`; `labels` `(batch_size,)`, from 0 to `config.num_labels - 1`; and
    `return_dict`: whether to return a `SequenceClassifierOutput` (default) or a tuple. Users can set `loss_function`.
    """

    auto_class_name = "AutoModelForSequenceClassification"
    takes_pairs = True
    _loss_function = staticmethod(ForSequenceClassificationLoss)


def stacked_sides(
    input_ids: torch.LongTensor | None,
    attention_mask: torch.Tensor | None,
    input_ids_pair: torch.LongTensor | None,
    attention_mask_pair: torch.Tensor | None,
    token_type_ids: torch.LongTensor | None,
) -> tuple[torch.LongTensor, torch.Tensor | None]:
    """Stacks the ids and masks of both sides of pairs to `[2 * B, T]`; the mask is `None` without padding.

    Args:
        input_ids, attention_mask: `[B, T]`, the first sequence of each pair; with `token_type_ids` both, joined.
        input_ids_pair, attention_mask_pair: `[B, T']`, the second sequences.
        token_type_ids: `[B, T]`, 0 at the tokens of the first sequence and 1 at those of the second.

    Raises:
        ValueError: if a side is missing, or the inputs do not fit together.
    """
    if input_ids is not None and input_ids_pair is None and token_type_ids is not None:
        sides = _split_sides(input_ids, attention_mask, token_type_ids)
        (input_ids, attention_mask), (input_ids_pair, attention_mask_pair) = sides
    if input_ids is None or input_ids_pair is None:
        raise ValueError("a pair has two sides: give input_ids and input_ids_pair, or joined pairs and token_type_ids")
    if input_ids.dim() != 2 or input_ids_pair.dim() != 2 or input_ids.shape[0] != input_ids_pair.shape[0]:
        shapes = f"{list(input_ids.shape)} and {list(input_ids_pair.shape)}"
        raise ValueError(f"input_ids and input_ids_pair must be [batch_size, length] of one batch_size, not {shapes}")
    sides = (input_ids, attention_mask), (input_ids_pair, attention_mask_pair)
    length = max(ids.shape[1] for ids, _ in sides)
    all_ids, all_masks = [], []
    for ids, mask in sides:
        missing = (0, length - ids.shape[1])
        all_ids.append(F.pad(ids, missing))
        all_masks.append(F.pad(torch.ones_like(ids) if mask is None else real_tokens(mask, ids).long(), missing))
    is_padded = any(mask is not None or ids.shape[1] < length for ids, mask in sides)
    return torch.cat(all_ids), torch.cat(all_masks) if is_padded else None


def _split_sides(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, token_type_ids: torch.LongTensor
) -> list[tuple[torch.LongTensor, torch.Tensor]]:
    """Returns ids and masks of both sides of joined pairs, padded on the right."""
    real, sides = real_tokens(attention_mask, input_ids), []
    for side in (0, 1):
        is_on_side = token_type_ids == side if real is None else real & (token_type_ids == side)
        lengths = is_on_side.sum(dim=1)
        if not lengths.all():
            pair = lengths.argmin().item()
            raise ValueError(f"pair {pair} has no tokens of type {side}: a pair needs both sequences")
        order = is_on_side.int().argsort(dim=1, descending=True, stable=True)[:, : lengths.max()]
        sides.append((input_ids.gather(1, order), is_on_side.gather(1, order)))
    return sides


def encode_by_length(
    model: PreTrainedModel, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """Returns the outputs `[N, H]` of a model at the last tokens of `[N, T]`; on a CPU in groups of similar length."""

    def encode(input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        outputs = model(input_ids, attention_mask, use_cache=False, return_dict=True)
        return outputs.last_hidden_state[:, -1]  # padding repeats the output of the last real token

    if attention_mask is None or input_ids.device.type != "cpu" or torch.compiler.is_compiling():
        return encode(input_ids, attention_mask)
    attention_mask = real_tokens(attention_mask, input_ids)
    order = attention_mask.sum(dim=1).argsort()
    encodings = []
    for rows in order.chunk(NUM_LENGTH_GROUPS):
        mask = attention_mask[rows]
        # Drops columns without real tokens, and the mask if no padding is left.
        used = mask.any(dim=0)
        mask = mask[:, used]
        encodings.append(encode(input_ids[rows][:, used], None if mask.all() else mask))
    return torch.cat(encodings)[order.argsort()]
