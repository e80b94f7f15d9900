import pytest
import torch

from onlstm_hf.models.modeling_prpn import attend, attend_to_windows
from tests.helpers.reading_problems import arguments, leaves
from tests.helpers.recurrences import read_sequence


@pytest.mark.parametrize("implementation", ["reference", "auto"])
def test_closed_gates_give_finite_values_and_gradients(implementation):
    tensors, keep = arguments(2, 5, 3, 4, dtype=torch.float32)
    input_gates, key_inputs, weights, gates, *memories = tensors
    closed = torch.zeros_like(gates).requires_grad_()
    tape, _, attentions = read_sequence(input_gates, key_inputs, weights, closed, *memories, *keep, implementation)
    assert not attentions.any()
    gradients = torch.autograd.grad(tape.sum(), [closed, *weights])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_bfloat16_products_stay_near_those_in_float32():
    tensors, keep = arguments(4, 6, 5, 32, dtype=torch.float32)
    expected, *_ = read_sequence(*tensors, *keep)
    with torch.autocast("cpu", torch.bfloat16):
        tape, *_ = read_sequence(*tensors, *keep)
    assert tape.dtype == torch.float32
    torch.testing.assert_close(tape, expected, rtol=0, atol=0.1)
    assert not torch.equal(tape, expected)
    upstream = torch.randn_like(expected)
    gradients = [torch.autograd.grad(hidden_states, leaves(tensors), upstream) for hidden_states in (tape, expected)]
    for actual, gradient in zip(*gradients, strict=True):
        assert (actual - gradient).norm() < 0.1 * gradient.norm()


@pytest.mark.parametrize("implementation", ["reference", "auto"])
def test_attentions_are_not_differentiable(implementation):
    tensors, keep = arguments(2, 4, 3, 4, dtype=torch.float32)
    *_, attentions = read_sequence(*tensors, *keep, implementation=implementation)
    assert not attentions.requires_grad


@pytest.mark.parametrize("length", [1, 5, 64, 65, 130])
def test_attention_to_windows_equals_attention_of_each_step(length):
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
