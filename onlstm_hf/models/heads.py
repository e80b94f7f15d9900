"""Heads of the models: the next token's logits and loss, mixtures of softmaxes, classes of sequences."""

import torch
from torch import nn
from torch.nn import functional as F

from .state import Linear, RecurrentConfig, check_vocabulary, is_plain, real_tokens

try:  # the same loss in blocks, without ever holding all logits
    from onlstm_hf.fast.vocabulary_loss import projected_next_token_loss
except ImportError:
    projected_next_token_loss = None

IGNORED_LABEL = -100


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
        A scalar in float32 at least; NaN with the gradient 0, as PyTorch's mean of nothing, if all labels are ignored.

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
        self.softmax_mixture = SoftmaxMixture(config) if is_mixture else None
        self.lm_head = Linear(config.embedding_size if is_mixture else config.output_size, config.vocab_size)

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
            loss = projected_next_token_loss(inputs, weight, bias, targets, num_items_in_batch, log_priors)
            return None, targets, loss
        logits = self.logits(hidden_states)
        cross_entropy = self.loss_function(
            logits=logits,
            labels=labels,
            vocab_size=logits.shape[-1],
            num_items_in_batch=num_items_in_batch,
            shift_labels=targets,
        )
        return None if skip_logits else logits, targets, cross_entropy


class SoftmaxMixture(nn.Module):
    """A mixture of softmaxes (Yang, Dai, Salakhutdinov & Cohen 2018).

    With a single softmax the log probabilities of all contexts are, up to a constant for each context, a matrix of a
    rank that the embedding size bounds. A mixture has no such bound:

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
        """Inputs of the head `[B, T, K, E]`, and log priors `[B, T, K]` in float32 at least, of states `[B, T, H]`."""
        latents = self.latent_dropout(self.latent_projection(hidden_states).tanh().transpose(1, 2)).transpose(1, 2)
        return latents.unflatten(-1, (self.num_softmaxes, -1)), _log_softmax(self.prior_projection(hidden_states))

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
