"""Perplexity of a text as one stream, with the state carried through the whole text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..models.heads import IGNORED_LABEL, next_token_loss
from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar


@dataclass(frozen=True)
class StreamScore:
    """Log likelihood of a text.

    Attributes:
        total_log_likelihood: sum over all tokens, in nats.
        num_tokens: number of predicted tokens.
    """

    total_log_likelihood: float
    num_tokens: int

    @property
    def loss(self) -> float:
        """Mean negative log likelihood of a token, in nats."""
        return -self.total_log_likelihood / self.num_tokens

    @property
    def perplexity(self) -> float:
        """Exponential of the loss; infinite if it exceeds the largest float."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf


def stream_log_likelihood(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    batch_size: int = 1,
    chunk_length: int = 256,
    progress: bool | None = None,
) -> StreamScore:
    """Scores a text as one stream, with the state carried through the whole text.

    Every token is predicted: the first one after an `<eos>`, and also those at chunk boundaries. With `batch_size > 1`
    the stream is cut into rows of equal length, each with an empty initial state and the previous token as its first
    input. This is faster, with slightly worse predictions at the starts.

    Args:
        model: a causal language model that returns `logits` and `state`.
        input_ids: `[N]` token ids.
        batch_size: number of rows; the papers use 10 for validation and 1 for the test.
        chunk_length: tokens per row and call. It does not change the result.
        progress: whether to show a progress bar; by default on a terminal, for jobs of more than two seconds.

    Raises:
        ValueError: if the stream is empty, has ids outside the vocabulary, or scores NaN; if the model's configuration
            has no `eos_token_id`; if an option is less than 1.
    """
    total, num_tokens, state = 0.0, 0, None
    with evaluation_mode(model):
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length, progress):
            output = model(inputs, state=state, use_cache=True)
            state = output.state
            total -= next_token_loss(output.logits, shift_labels=targets, num_items_in_batch=1).item()
            num_tokens += int((targets != IGNORED_LABEL).sum())
            if not math.isfinite(total):
                raise ValueError("the log likelihood is not finite: the model's weights contain NaN or infinity")
    return StreamScore(total, num_tokens)


def encode_sentence_stream(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> torch.Tensor:
    """Returns the token ids `[N]` of sentences as one stream, each followed by `<eos>`.

    Raises:
        ValueError: if the tokenizer has no `<eos>`.
    """
    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer needs an eos_token, which ends every sentence")
    encoded = tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"] if sentences else []
    return torch.tensor([token for ids in encoded for token in [*ids, tokenizer.eos_token_id]], dtype=torch.long)


def stream_chunks(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    batch_size: int = 1,
    chunk_length: int = 256,
    progress: bool | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cuts a text into inputs and targets for successive calls of a model.

    Args:
        model, input_ids, batch_size, chunk_length, progress: see `stream_log_likelihood`, also for the errors.

    Yields:
        Inputs and targets, each `[batch_size, chunk_length]` (the last ones shorter), on the model's device. Each
        target is the token after its input; the first input is an `<eos>`. The rows of all targets, concatenated, are
        the text, padded with `IGNORED_LABEL`.
    """
    stream = torch.as_tensor(input_ids, dtype=torch.long).cpu()
    check_token_ids(stream, model)
    for name, value in {"batch_size": batch_size, "chunk_length": chunk_length}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    rows = _as_rows(stream, _first_token_id(model), min(batch_size, len(stream)))
    inputs, targets = (row.to(model.device) for row in rows)
    for start in progress_bar(range(0, inputs.shape[1], chunk_length), unit="chunk", shown=progress):
        chunk = slice(start, start + chunk_length)
        yield inputs[:, chunk], targets[:, chunk]


def stream_log_probabilities(
    model: PreTrainedModel, input_ids: torch.Tensor | Sequence[int], batch_size: int = 1, chunk_length: int = 256
) -> torch.Tensor:
    """Returns the natural log probability of each token of a stream.

    Args:
        model, input_ids, batch_size, chunk_length: see `stream_log_likelihood`, also for the errors.

    Returns:
        `[N]` in float64, on the CPU.
    """
    chunks, state = [], None
    with evaluation_mode(model):
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length):
            output = model(inputs, state=state, use_cache=True)
            state = output.state
            chunks.append(target_log_probabilities(output.logits, targets).cpu())
    log_probabilities = torch.cat(chunks, dim=1).flatten()[: len(input_ids)]
    if not log_probabilities.isfinite().all():
        raise ValueError("a log probability is not finite: the model's weights contain NaN or infinity")
    return log_probabilities


def target_log_probabilities(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the natural log probability of each target.

    Args:
        logits: `[B, T, V]`.
        targets: `[B, T]`. For `IGNORED_LABEL` the result is meaningless.

    Returns:
        `[B, T]` in float64, computed in float32 at least.
    """
    log_probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    return log_probabilities.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1).double()


def check_token_ids(input_ids: torch.Tensor, model: PreTrainedModel) -> None:
    """Raises a `ValueError` if the ids are not a non-empty vector, or are outside the model's vocabulary."""
    if input_ids.dim() != 1 or len(input_ids) == 0:
        raise ValueError(f"expected a stream of at least one token, got a tensor of shape {list(input_ids.shape)}")
    outside = input_ids[(input_ids < 0) | (input_ids >= model.config.vocab_size)]
    if len(outside):
        raise ValueError(
            f"token id {outside[0]} is outside the model's vocabulary of {model.config.vocab_size}: the tokenizer "
            "does not belong to this model"
        )


def _first_token_id(model: PreTrainedModel) -> int:
    """Returns the `<eos>` that precedes the text."""
    token_id = model.config.eos_token_id
    if token_id is None:
        raise ValueError("the text starts after an <eos>: set model.config.eos_token_id to the tokenizer's")
    return token_id[0] if isinstance(token_id, list | tuple) else token_id


def _as_rows(stream: torch.Tensor, first_id: int, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets, `[batch_size, ceil(N / batch_size)]`; padding targets are `IGNORED_LABEL`."""
    length = math.ceil(len(stream) / batch_size)
    padding = batch_size * length - len(stream)
    targets = F.pad(stream, (0, padding), value=IGNORED_LABEL).view(batch_size, length)
    inputs = F.pad(torch.cat([stream.new_tensor([first_id]), stream[:-1]]), (0, padding)).view(batch_size, length)
    return inputs, targets
