import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm_hf.fast.prpn.contract import ReadingWeights
from onlstm_hf.models.modeling_prpn import attend, attend_to_windows
from tests.helpers.reading_problems import arguments, leaves
from tests.helpers.recurrences import read_sequence


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 7), st.integers(1, 5), st.integers(2, 6), st.booleans())
def test_the_fused_path_has_the_values_and_gradients_of_the_reference(batch_size, length, num_slots, size, masks):
    tensors, keep = arguments(batch_size, length, num_slots, size, masks)
    outputs = [read_sequence(*tensors, *keep, implementation=name) for name in ("reference", "fused")]
    torch.testing.assert_close(*outputs)
    upstream = [torch.randn_like(tape) for tape in outputs[0][:2]]
    gradients = [torch.autograd.grad(output[:2], leaves(tensors), upstream) for output in outputs]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_gradients_are_those_of_finite_differences(implementation):
    tensors, keep = arguments(2, 3, 2, 3)

    def tapes(*values):
        input_gates, key_inputs, *weights, gates, hidden, cell = values
        weights = ReadingWeights(*weights)
        return read_sequence(input_gates, key_inputs, weights, gates, hidden, cell, *keep, implementation)[:2]

    assert torch.autograd.gradcheck(tapes, leaves(tensors), fast_mode=True)


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_closed_gates_give_finite_values_and_gradients(implementation):
    tensors, keep = arguments(2, 5, 3, 4, dtype=torch.float32)
    input_gates, key_inputs, weights, gates, *memories = tensors
    closed = torch.zeros_like(gates).requires_grad_()
    outputs = read_sequence(input_gates, key_inputs, weights, closed, *memories, *keep, implementation)
    assert not outputs.attentions.any()
    gradients = torch.autograd.grad(outputs[0].sum(), [closed, *weights])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_bfloat16_products_stay_near_those_in_float32():
    tensors, keep = arguments(4, 6, 5, 32, dtype=torch.float32)
    expected = read_sequence(*tensors, *keep)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = read_sequence(*tensors, *keep)
    assert outputs.hidden_tape.dtype == torch.float32
    torch.testing.assert_close(outputs.hidden_tape, expected.hidden_tape, rtol=0, atol=0.1)
    assert not torch.equal(outputs.hidden_tape, expected.hidden_tape)
    upstream = torch.randn_like(expected.hidden_tape)
    gradients = [torch.autograd.grad(o.hidden_tape, leaves(tensors), upstream) for o in (outputs, expected)]
    for actual, gradient in zip(*gradients, strict=True):
        assert (actual - gradient).norm() < 0.1 * gradient.norm()


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_the_recurrent_map_takes_nothing_from_dropped_units(kept):
    tensors, (newest_keep, key_keep, _) = arguments(2, 4, 3, 4)
    keep = (newest_keep, key_keep, torch.tensor([2.0] * kept + [0.0] * (4 - kept), dtype=torch.float64))
    outputs = [read_sequence(*tensors, *keep, implementation=name) for name in ("reference", "fused")]
    torch.testing.assert_close(*outputs)
    recurrent = tensors[2].recurrent
    gradients = [torch.autograd.grad(output.hidden_tape.sum(), recurrent)[0] for output in outputs]
    torch.testing.assert_close(*gradients)
    assert not gradients[1][:, kept:].any()


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_attentions_are_not_differentiable(implementation):
    tensors, keep = arguments(2, 4, 3, 4)
    assert not read_sequence(*tensors, *keep, implementation=implementation).attentions.requires_grad


@pytest.mark.parametrize("length", [1, 5, 64, 65, 130])
def test_attention_to_windows_is_that_of_every_step_alone(length):
    torch.manual_seed(0)
    num_slots, size = 4, 6
    keys = torch.randn(2, length, size, dtype=torch.float64)
    tape = torch.randn(2, num_slots + length, size, dtype=torch.float64)
    gates = torch.rand(2, length, num_slots, dtype=torch.float64)
    summaries, attentions = attend_to_windows(keys, tape, gates)
    for step in range(length):
        window = tape[:, step : step + num_slots]
        attention = attend((window @ keys[:, step, :, None]).squeeze(-1) / size**0.5, gates[:, step])
        torch.testing.assert_close(attentions[:, step], attention)
        torch.testing.assert_close(summaries[:, step], (attention.unsqueeze(-1) * window).sum(1))


def test_an_unknown_implementation_is_refused():
    tensors, keep = arguments(1, 1, 1, 2)
    with pytest.raises(ValueError, match="must be one of auto, native, triton, fused, not 'fast'"):
        read_sequence(*tensors, *keep, implementation="fast")
