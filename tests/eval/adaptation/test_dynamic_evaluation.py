import math
from copy import deepcopy

import pytest
import torch

from eval.adaptation.cache_pointer import CachePointer
from eval.adaptation.dynamic_evaluation import DynamicEvaluation, adapted_log_probabilities, gradient_root_mean_squares
from onlstm_hf.scoring.stream import stream_log_likelihood
from tests.helpers.tiny_models import KINDS

EOS, LENGTH = 4, 23
SETTINGS = DynamicEvaluation(learning_rate=0.05, decay=0.3, segment_length=3, epsilon=0.5)
CACHES = [CachePointer(4, 0.3, 0.2), CachePointer(1, 1.0, 0.6), CachePointer(1000, 0.0, 0.5)]


def rows_of(text, batch_size):
    """Returns inputs and targets of each row; the last row may be shorter."""
    length = math.ceil(len(text) / batch_size)
    inputs = torch.cat([torch.tensor([EOS]), text[:-1]])
    return [(inputs[start : start + length], text[start : start + length]) for start in range(0, len(text), length)]


def mean_loss(model, segments, states):
    """Returns the mean loss of segments, read row by row, the steps for `with_cache`, and the new states."""
    losses, steps, new_states = [], [], []
    for (inputs, targets), state in zip(segments, states, strict=True):
        hidden = torch.zeros(0)
        if len(inputs):
            output = model.model(inputs[None], state=state, use_cache=True)
            hidden, state = output.last_hidden_state[0], output.state.detach()
            losses.append(-model.lm_head(hidden).log_softmax(dim=-1)[range(len(targets)), targets])
        probabilities = (-losses[-1]).exp().tolist() if len(inputs) else []
        steps.append(list(zip(hidden.detach(), targets.tolist(), probabilities, strict=True)))
        new_states.append(state)
    return torch.cat(losses).mean(), steps, new_states


def brute_force(model, text, settings, gradient_rms=None, batch_size=1):
    """Applies the paper's update explicitly to a copy of the model, row by row, with `backward`."""
    model = deepcopy(model)
    own = [parameter.detach().clone() for parameter in model.parameters()]
    rows = rows_of(text, batch_size)
    states, found = [None] * len(rows), [[] for _ in rows]
    for start in range(0, len(rows[0][0]), settings.segment_length):
        segment = slice(start, start + settings.segment_length)
        loss, steps, states = mean_loss(model, [(row[0][segment], row[1][segment]) for row in rows], states)
        for row, row_steps in zip(found, steps, strict=True):
            row += row_steps
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for index, parameter in enumerate(model.parameters()):
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                step, decay = settings.learning_rate * gradient, settings.decay
                if gradient_rms is not None:
                    everything = torch.cat([rms.flatten() for rms in gradient_rms])
                    mean = everything.sum() / everything.numel()
                    step = step / (gradient_rms[index] + settings.epsilon * mean)
                    decay = torch.minimum(settings.decay * gradient_rms[index] / mean, torch.tensor(1.0))
                parameter.copy_(parameter - step + decay * (own[index] - parameter))
    return [step for row in found for step in row]


def log_probabilities_of(steps):
    return [math.log(probability) for _, _, probability in steps]


@pytest.mark.parametrize("normalised", [False, True])
def test_probabilities_equal_the_explicit_update(model, stream, with_cache, normalised):
    gradient_rms = gradient_root_mean_squares(model, stream.flip(0), 1, 4) if normalised else None
    steps = brute_force(model, stream, SETTINGS, gradient_rms)
    (found,) = adapted_log_probabilities(model, stream, SETTINGS, gradient_rms=gradient_rms)
    assert found.tolist() == pytest.approx(log_probabilities_of(steps), rel=1e-9)
    without = stream_log_likelihood(model, stream).total_log_likelihood
    assert abs(found.sum().item() - without) > 1e-2
    # A cache keeps hidden states of earlier weights.
    with_caches = adapted_log_probabilities(model, stream, SETTINGS, CACHES, gradient_rms)
    for cache, log_probabilities in zip(CACHES, with_caches, strict=True):
        assert log_probabilities.tolist() == pytest.approx(with_cache(steps, cache), rel=1e-9)


@pytest.mark.parametrize("segment_length", [1, 5, 100])
def test_segments_of_any_length_and_batches_equal_the_explicit_update(stream, segment_length):
    model, settings = KINDS["onlstm"].make(eos_token_id=EOS).double(), SETTINGS._replace(segment_length=segment_length)
    steps = brute_force(model, stream, settings, batch_size=3)
    (found,) = adapted_log_probabilities(model, stream, settings, batch_size=3)
    assert found.tolist() == pytest.approx(log_probabilities_of(steps), rel=1e-9)


def test_learning_rate_zero_leaves_only_the_cache(model, stream):
    found = adapted_log_probabilities(model, stream, SETTINGS._replace(learning_rate=0), CACHES)
    for log_probabilities, alone in zip(found, adapted_log_probabilities(model, stream, None, CACHES), strict=True):
        assert log_probabilities.tolist() == pytest.approx(alone.tolist(), rel=1e-9)


def test_gradient_statistics_are_the_root_mean_square_over_batches(model, stream):
    squares, states, rows = None, [None, None], rows_of(stream, 2)
    copy = deepcopy(model)
    for start in range(0, 12, 5):
        segment = slice(start, start + 5)
        loss, _, states = mean_loss(copy, [(row[0][segment], row[1][segment]) for row in rows], states)
        copy.zero_grad()
        loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.square() for p in copy.parameters()]
        squares = gradients if squares is None else [a + b for a, b in zip(squares, gradients, strict=True)]
    expected = [(square / 3).sqrt() for square in squares]
    torch.testing.assert_close(gradient_root_mean_squares(model, stream, 2, 5), expected, rtol=1e-9, atol=1e-12)


def test_repetitive_text_becomes_more_probable(stream):
    model = KINDS["onlstm"].make(eos_token_id=EOS, weight_dropout=0.0)
    text = stream.repeat(8)
    (found,) = adapted_log_probabilities(model, text, DynamicEvaluation(0.3))
    assert found[-LENGTH:].mean() > found[:LENGTH].mean() + 0.3


@pytest.mark.parametrize("training", [False, True])
def test_weights_mode_and_gradients_are_restored(model, stream, training):
    model.train(training)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapted_log_probabilities(model, stream, SETTINGS)
    gradient_root_mean_squares(model, stream)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training is training
    assert all(parameter.grad.eq(1).all() for parameter in model.parameters())


def test_weights_are_restored_if_the_learning_rate_is_too_high(stream):
    model = KINDS["lstm"].make(eos_token_id=EOS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="the learning rate 1e[+]38 is too high"):
        adapted_log_probabilities(model, stream, DynamicEvaluation(1e38))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
