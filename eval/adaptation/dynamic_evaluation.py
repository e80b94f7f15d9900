"""Dynamic evaluation (Krause, Kahembwe, Murray & Renals 2018): the model is trained on the test text while reading."""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from eval.adaptation.cache_pointer import CachePointer, CacheWindow
from onlstm_hf.models.heads import next_token_loss
from onlstm_hf.scoring.stream import stream_chunks, target_log_probabilities
from onlstm_hf.utils.evaluation_mode import evaluation_mode

MODEL_ALONE = CachePointer(size=1, flatness=0.0, weight=0.0)


class DynamicEvaluationDiverged(ValueError):
    """Raised if updates make the weights so large that the model returns no finite probabilities."""


class DynamicEvaluation(NamedTuple):
    """Settings of dynamic evaluation (section 4 of the paper)."""

    learning_rate: float  # eta
    decay: float = 0.0  # lambda, the fraction of the distance to the original weights that each update goes back
    segment_length: int = 5  # tokens of each row between two updates
    epsilon: float = 1.0  # added to root mean squares of gradients, in units of their mean; only with `gradient_rms`


def adapted_log_probabilities(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    settings: DynamicEvaluation | None,
    caches: Sequence[CachePointer] = (MODEL_ALONE,),
    gradient_rms: Sequence[torch.Tensor] | None = None,
    batch_size: int = 1,
    chunk_length: int = 256,
) -> list[torch.Tensor]:
    """Scores a text as one stream like `stream_log_likelihood`, with caches and updates of the weights.

    Each segment is scored first. Then the gradient `g` of its mean loss updates the weights of a copy of the model.
    Without `gradient_rms` this is stochastic gradient descent with decay towards the original weights `W`,

        w <- w - learning_rate g + decay (W - w)

    With `gradient_rms` it is the paper's rule, in which weights with large gradients in training decay faster,

        w <- w - learning_rate g / (rms + epsilon mean(rms)) + min(decay rms / mean(rms), 1) (W - w)

    The state is carried, and gradients stop at the start of a segment. Dropout is off. Caches do not contribute to the
    loss of the updates. They compare hidden states computed with the weights of their time. The caches of each row
    start empty.

    Args:
        settings: `None` makes no updates.
        caches: by default the model is used alone. The model runs once for all caches.
        gradient_rms: result of `gradient_root_mean_squares`.
        chunk_length: tokens of each row per forward pass without updates.
        model, input_ids, batch_size: see `stream_log_likelihood`, also for the errors; gradients of rows are averaged.

    Returns:
        Natural log probabilities of the tokens for each cache, `[N]` in float64.

    Raises:
        DynamicEvaluationDiverged: if the learning rate is so high that the weights become infinite.
    """
    chunks: list[list[torch.Tensor]] = [[] for _ in caches]
    window, state, original_weights = CacheWindow(caches), None, list(model.parameters())
    if settings:
        model, chunk_length = deepcopy(model), settings.segment_length
        weights = list(model.parameters())
        decays, divisors = _rates(settings, weights, gradient_rms)
    with evaluation_mode(model, gradients=settings is not None):
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length):
            output = model.model(inputs, state=state, use_cache=True)
            state, hidden = output.state.detach(), output.last_hidden_state
            logits = model.logits(hidden)
            from_model = target_log_probabilities(logits.detach(), targets)
            if not from_model.isfinite().all():
                reason = f"the learning rate {settings.learning_rate} is too high, or " if settings else ""
                raise DynamicEvaluationDiverged(
                    f"a log probability is not finite: {reason}the model's weights contain NaN or infinity"
                )
            for scores, mixed in zip(chunks, window.mix(from_model, hidden.detach(), targets), strict=True):
                scores.append(mixed)
            if settings:
                gradients = _gradients(next_token_loss(logits, shift_labels=targets), weights)
                with torch.no_grad():
                    for weight, original, gradient, decay, divisor in zip(
                        weights, original_weights, gradients, decays, divisors, strict=True
                    ):
                        weight.lerp_(original, decay).addcdiv_(gradient, divisor, value=-settings.learning_rate)
    return [torch.cat(scores, dim=1).flatten()[: len(input_ids)] for scores in chunks]


def _rates(
    settings: DynamicEvaluation, weights: Sequence[torch.Tensor], gradient_rms: Sequence[torch.Tensor] | None
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns the decay and the divisor of the gradient for each weight."""
    if gradient_rms is None:
        return [weights[0].new_tensor(settings.decay)] * len(weights), [weights[0].new_ones(())] * len(weights)
    mean = torch.cat([rms.flatten() for rms in gradient_rms]).mean()
    return (
        [(settings.decay / mean * rms).clamp(max=1) for rms in gradient_rms],
        [rms + settings.epsilon * mean for rms in gradient_rms],
    )


def gradient_root_mean_squares(
    model: PreTrainedModel, input_ids: torch.Tensor | Sequence[int], batch_size: int = 20, chunk_length: int = 70
) -> list[torch.Tensor]:
    """Returns the root mean square of each parameter's gradient over a training text, in the order of `parameters()`.

    The text `[N]` is read in batches, see `stream_log_likelihood`. Dropout is off.
    """
    weights = list(model.parameters())
    sums, state, num_batches = [torch.zeros_like(weight) for weight in weights], None, 0
    with evaluation_mode(model, gradients=True):
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length):
            output = model(inputs, state=state, use_cache=True, shift_labels=targets, skip_logits=True)
            state, num_batches = output.state.detach(), num_batches + 1
            for total, gradient in zip(sums, _gradients(output.loss, weights), strict=True):
                total.addcmul_(gradient, gradient)
    return [total.div_(num_batches).sqrt_() for total in sums]


def _gradients(loss: torch.Tensor, weights: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Returns the gradient of each weight, zero if the loss does not depend on it; `weight.grad` is not changed."""
    return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
