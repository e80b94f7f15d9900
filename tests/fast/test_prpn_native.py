"""The compiled operator of the reading network for each instruction set of this CPU, compared with the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm_hf.fast.prpn import native as native
from onlstm_hf.fast.recurrence.native_library import INSTRUCTION_SETS
from tests.helpers.native_operators import needs_operator, use_instruction_set
from tests.helpers.reading_problems import arguments, converted, leaves
from tests.helpers.recurrences import read_sequence

OPERATOR = native.OPERATOR
built = needs_operator(OPERATOR)

# Batch, steps, slots, units: odd sizes, parts of vectors, more and fewer rows than a register tile, sizes of 1.
SHAPES = [(1, 1, 1, 2), (2, 3, 2, 3), (3, 7, 5, 17), (13, 5, 15, 33), (4, 9, 3, 48), (2, 4, 7, 390)]


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request, monkeypatch):
    use_instruction_set(OPERATOR, request.param, monkeypatch)


def values_and_gradients(tensors, keep, implementation, upstream):
    outputs = read_sequence(*tensors, *keep, implementation=implementation)
    upstream = [gradient.to(outputs[0].dtype) for gradient in upstream]
    return [*outputs, *torch.autograd.grad(outputs[:2], leaves(tensors), upstream)]


def assert_near_the_reference(tensors, keep, tolerance, precision=torch.float32):
    """Compares values, and gradients relative to the largest one."""
    batch_size, num_slots, size = tensors[-1].shape
    upstream = torch.randn(2, batch_size, num_slots + tensors[0].shape[1], size).unbind()
    expected = values_and_gradients(tensors, keep, "reference", upstream)
    keep = [mask if mask is None else mask.float() for mask in keep]
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        actual = values_and_gradients(converted(tensors, "cpu"), keep, "native", upstream)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape
        if precision == torch.float32:
            assert (ours - theirs).abs().max() <= tolerance * max(1, theirs.abs().max())
        else:
            assert (ours - theirs).norm() <= tolerance * max(1, theirs.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masks", [False, True])
def test_values_and_gradients_equal_the_reference(instruction_set, shape, masks):
    assert_near_the_reference(*arguments(*shape, masks), 5e-5)


@pytest.mark.parametrize("kept", [0, 1, 20])
def test_dropped_units_do_not_enter_the_recurrent_map(instruction_set, kept):
    tensors, (newest_keep, key_keep, _) = arguments(3, 4, 3, 20)
    summary_keep = torch.tensor([2.0] * kept + [0.0] * (20 - kept), dtype=torch.float64)
    assert_near_the_reference(tensors, (newest_keep, key_keep, summary_keep), 5e-5)


def test_closed_slots_have_no_effect(instruction_set):
    tensors, keep = arguments(3, 6, 7, 20)
    gates = tensors[3].detach()
    gates[gates < 0.7] = 0
    gates[0, 2] = 0
    assert_near_the_reference((*tensors[:3], gates.requires_grad_(), *tensors[4:]), keep, 5e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_in_bfloat16_stay_near_the_reference(instruction_set, shape):
    (input_gates, key_inputs, weights, *others), keep = arguments(*shape)
    # Scores at the scale of trained models; a softmax of larger scores amplifies rounding errors.
    key, key_bias, recurrent, *vectors = weights
    key, recurrent = ((weight.detach() / shape[-1] ** 0.5).requires_grad_() for weight in (key, recurrent))
    weights = key, key_bias, recurrent, *vectors
    assert_near_the_reference((input_gates, key_inputs, weights, *others), keep, 0.05, torch.bfloat16)


@built
@settings(max_examples=40, deadline=None)
@given(
    batch_size=st.integers(1, 8),
    length=st.integers(1, 8),
    num_slots=st.integers(1, 6),
    size=st.integers(5, 40),  # normalisation of very few units amplifies rounding errors
    masks=st.booleans(),
    num_threads=st.integers(1, 3),
)
def test_any_shape_and_number_of_threads_equals_the_reference(batch_size, length, num_slots, size, masks, num_threads):
    tensors, keep = arguments(batch_size, length, num_slots, size, masks)
    # If all slots are nearly closed, gradients of gates are differences of large numbers and have rounding errors.
    gates = (0.1 + 0.9 * tensors[3].detach()).requires_grad_()
    torch.set_num_threads(num_threads)
    assert_near_the_reference((*tensors[:3], gates, *tensors[4:]), keep, 1e-4)


@built
def test_memories_without_gradient_do_not_change_other_gradients():
    tensors, keep = arguments(3, 5, 4, 6)
    tensors, keep = converted(tensors, "cpu"), [mask.float() for mask in keep]
    upstream = [torch.randn(3, 9, 6) for _ in range(2)]
    expected = values_and_gradients(tensors, keep, "native", upstream)[:-2]
    fixed = (*tensors[:-2], *(memories.detach() for memories in tensors[-2:]))
    outputs = read_sequence(*fixed, *keep, implementation="native")
    actual = [*outputs, *torch.autograd.grad(outputs[:2], leaves(tensors)[:-2], upstream)]
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
