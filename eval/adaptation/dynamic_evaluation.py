"""Dynamic evaluation (Krause, Kahembwe, Murray & Renals 2018): a model that learns from the text it is tested on."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from eval.adaptation.cache_pointer import CachePointer, CacheWindow
from onlstm_hf.models.heads import next_token_loss
from onlstm_hf.scoring.stream import stream_chunks, target_log_probabilities
from onlstm_hf.utils.evaluation_mode import evaluation_mode

MODEL_ALONE = CachePointer(size=1, flatness=0.0, weight=0.0)


class DynamicEvaluationDiverged(ValueError):
    """The updates made the weights so large that the model gives no probabilities any more."""


class DynamicEvaluation(NamedTuple):
    """Settings of dynamic evaluation (section 4 of the paper).

    Attributes:
        learning_rate: eta.
        decay: lambda, the share of the way back to the model's own weights that every update goes; 0 to 1.
        segment_length: tokens (of each row) between two updates.
        epsilon: what is added to the root mean squares of the gradients, as a multiple of their mean; only for the
            update that divides by them.
    """

    learning_rate: float
    decay: float = 0.0
    segment_length: int = 5
    epsilon: float = 1.0

    def check(self) -> None:
        """Raises a `ValueError` for a setting out of its range."""
        numbers_fit = 0 <= self.learning_rate < math.inf and 0 <= self.decay <= 1 and 0 < self.epsilon < math.inf
        if not numbers_fit or self.segment_length < 1:
            raise ValueError(
                "dynamic evaluation needs a learning rate of at least 0, a decay between 0 and 1, segments of at "
                f"least one token and an epsilon above 0, not {self}"
            )


def adapted_log_probabilities(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    settings: DynamicEvaluation | None,
    caches: Sequence[CachePointer] = (MODEL_ALONE,),
    gradient_rms: Sequence[torch.Tensor] | None = None,
    batch_size: int = 1,
    chunk_length: int = 256,
) -> list[torch.Tensor]:
    """Scores a text as one stream, as `stream_log_likelihood` does, with caches, and changes the weights on the way.

    A segment is scored, and then the weights are updated by the gradient `g` of its mean loss: without `gradient_rms`
    by stochastic gradient descent with decay towards the model's own weights `W`,

        w <- w - learning_rate g + decay (W - w)

    and otherwise by the paper's rule, in which weights that had large gradients in training move back faster,

        w <- w - learning_rate g / (rms + epsilon mean(rms)) + min(decay rms / mean(rms), 1) (W - w)

    The state is carried, and gradients do not reach into earlier segments. After the call the model has its own
    weights and its mode again, also where the call fails. It runs as in evaluation: without dropout.

    A cache beside the model has no part in the loss that the weights follow. It compares hidden states as they were
    when their words were read, by the weights of that time. The model runs once for all caches. Each row has an empty
    cache at its start.

    Args:
        settings: see `DynamicEvaluation`; `None` leaves the weights as they are.
        caches: see `CachePointer`; by default the model is alone.
        gradient_rms: for each of the model's parameters that are trained, see `gradient_root_mean_squares`.
        chunk_length: tokens of each row at a time where the weights stay; else that is the `segment_length`. Memory
            holds scores of `[batch_size, chunk_length, size of the cache + chunk_length]`.
        model, input_ids, batch_size: see `stream_log_likelihood`, also for the errors; gradients of rows are averaged.

    Returns:
        For each of the caches the natural log probabilities of the tokens, `[N]` in float64.

    Raises:
        ValueError: also for settings out of their range, and if the weights should change and none is trained.
        DynamicEvaluationDiverged: where the learning rate is so high that the weights become infinite.
    """
    for checked in (*([settings] if settings else []), *caches):
        checked.check()
    chunks: list[list[torch.Tensor]] = [[] for _ in caches]
    window, state = CacheWindow(caches), None
    with _adapted_weights(model) if settings else evaluation_mode(model) as adapted:
        if settings:
            (weights, own_weights), chunk_length = adapted, settings.segment_length
            decays, divisors = _rates(settings, weights, gradient_rms)
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
            for found, mixed in zip(chunks, window.mix(from_model, hidden.detach(), targets), strict=True):
                found.append(mixed)
            if not settings:
                continue
            gradients = _gradients(next_token_loss(logits, shift_labels=targets), weights)
            with torch.no_grad():
                for weight, own, gradient, decay, divisor in zip(
                    weights, own_weights, gradients, decays, divisors, strict=True
                ):
                    weight.lerp_(own, decay).addcdiv_(gradient, divisor, value=-settings.learning_rate)
    return [torch.cat(found, dim=1).flatten()[: len(input_ids)] for found in chunks]


def _rates(
    settings: DynamicEvaluation, weights: Sequence[torch.Tensor], gradient_rms: Sequence[torch.Tensor] | None
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """For each weight the share that it decays by, and what its gradient is divided by."""
    if gradient_rms is None:
        return [weights[0].new_tensor(settings.decay)] * len(weights), [weights[0].new_ones(())] * len(weights)
    if [rms.shape for rms in gradient_rms] != [weight.shape for weight in weights]:
        raise ValueError("gradient_rms is not of this model: its tensors have other shapes than the weights")
    mean = torch.cat([rms.flatten() for rms in gradient_rms]).mean()
    if not 0 < mean < math.inf:
        raise ValueError(f"the gradients of the training text have the mean {mean.item()}; it must be above 0")
    return (
        [(settings.decay / mean * rms).clamp(max=1) for rms in gradient_rms],
        [rms + settings.epsilon * mean for rms in gradient_rms],
    )


def gradient_root_mean_squares(
    model: PreTrainedModel,
    input_ids: torch.Tensor | Sequence[int],
    batch_size: int = 20,
    chunk_length: int = 70,
) -> list[torch.Tensor]:
    """The root of the mean square of each parameter's gradient, in the order of `parameters()`, over a training text.

    The text `[N]` is read in batches, see `stream_log_likelihood`, without dropout; the weights are not changed.

    Raises:
        ValueError: if no parameter is trained.
    """
    state, num_batches = None, 0
    with _adapted_weights(model) as (weights, _):
        sums = [torch.zeros_like(weight) for weight in weights]
        for inputs, targets in stream_chunks(model, input_ids, batch_size, chunk_length):
            output = model(inputs, state=state, use_cache=True, shift_labels=targets, skip_logits=True)
            state, num_batches = output.state.detach(), num_batches + 1
            for total, gradient in zip(sums, _gradients(output.loss, weights), strict=True):
                total.addcmul_(gradient, gradient)
    return [total.div_(num_batches).sqrt_() for total in sums]


@contextmanager
def _adapted_weights(model: PreTrainedModel) -> Iterator[tuple[list[torch.nn.Parameter], list[torch.Tensor]]]:
    """Yields the parameters that are trained, and copies of their values.

    Within the block the model is in evaluation mode; afterwards it has its own weights and mode again.
    """
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not weights:
        raise ValueError("no parameter of the model requires a gradient, so that none can be adapted")
    own_weights = [weight.detach().clone() for weight in weights]
    try:
        with evaluation_mode(model, gradients=True):
            yield weights, own_weights
    finally:
        with torch.no_grad():
            for weight, own in zip(weights, own_weights, strict=True):
                weight.copy_(own)


def _gradients(loss: torch.Tensor, weights: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The gradient by each weight, zero where the loss does not depend on it. `weight.grad` is left alone."""
    return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
