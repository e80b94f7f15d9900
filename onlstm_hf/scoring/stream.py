"""Perplexity of a text as one stream, with the state carried through the whole text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..models.heads import IGNORED_LABEL
from ..models.state import check_vocabulary
from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar


@dataclass(frozen=True)
class StreamScore:
    """Log likelihood of a text: the sum over its tokens, in nats, and the number of predicted tokens."""

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
            has no `eos_token_id`.
    """
    log_probabilities = stream_log_probabilities(model, input_ids, batch_size, chunk_length, progress)
    return StreamScore(log_probabilities.sum().item(), len(log_probabilities))


def stream_log_probabilities(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    batch_size: int = 1,
    chunk_length: int = 256,
    progress: bool | None = None,
) -> torch.Tensor:
    """Returns the natural log probability of each token, `[N]` in float64 on the CPU; see `stream_log_likelihood`."""
    chunks, state = [], None
    with evaluation_mode(model):
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length, progress):
            output = model(inputs, state=state, use_cache=True)
            state = output.state
            chunks.append(target_log_probabilities(output.logits, targets).cpu())
            if not chunks[-1].isfinite().all():
                raise ValueError("a log probability is not finite: the model's weights contain NaN or infinity")
    return torch.cat(chunks, dim=1).flatten()[: len(input_ids)]


def stream_chunks(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    batch_size: int = 1,
    chunk_length: int = 256,
    progress: bool | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cuts a text into inputs and targets for calls of a model; see `stream_log_likelihood`, also for the errors.

    Yields:
        Inputs and targets, each `[batch_size, chunk_length]` (the last ones shorter), on the model's device. Each
        target is the token after its input; the first input is an `<eos>`. The rows of all targets, concatenated, are
        the text, padded with `IGNORED_LABEL`.
    """
    stream = torch.as_tensor(input_ids, dtype=torch.long).cpu()
    if stream.dim() != 1 or not len(stream):
        raise ValueError(f"expected a stream of at least one token, got a tensor of shape {list(stream.shape)}")
    if min(batch_size, chunk_length) < 1:
        raise ValueError(f"batch_size and chunk_length must be at least 1, not {batch_size} and {chunk_length}")
    check_vocabulary("input_ids", stream, model.config.vocab_size)
    if model.config.eos_token_id is None:
        raise ValueError("the text starts after an <eos>: set model.config.eos_token_id to the tokenizer's")
    start = torch.tensor(model.config.eos_token_id).view(-1)[:1]  # one id, or the first of a list
    num_rows = min(batch_size, len(stream))
    padding = (0, -len(stream) % num_rows)
    inputs = F.pad(torch.cat([start, stream[:-1]]), padding)
    targets = F.pad(stream, padding, value=IGNORED_LABEL)
    chunks = (part.view(num_rows, -1).to(model.device).split(chunk_length, dim=1) for part in (inputs, targets))
    yield from progress_bar(list(zip(*chunks, strict=True)), unit="chunk", shown=progress)


def encode_sentence_stream(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> torch.Tensor:
    """Returns the token ids `[N]` of sentences as one stream, each followed by `<eos>`.

    Raises:
        ValueError: if the tokenizer has no `<eos>`.
    """
    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer needs an eos_token, which ends every sentence")
    encoded = tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"] if sentences else []
    return torch.tensor([token for ids in encoded for token in [*ids, tokenizer.eos_token_id]], dtype=torch.long)


def target_log_probabilities(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the natural log probability of each target `[B, T]` in float64, computed in float32 at least.

    The logits are `[B, T, V]`. For the target `IGNORED_LABEL` the result is meaningless.
    """
    log_probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    return log_probabilities.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1).double()
