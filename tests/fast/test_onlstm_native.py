"""The compiled CPU operator for each instruction set of this CPU, compared with the float64 reference."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm_hf.fast.onlstm import native as native
from onlstm_hf.fast.recurrence.native_library import INSTRUCTION_SETS
from tests.helpers.native_operators import needs_operator, use_instruction_set
from tests.helpers.onlstm_problems import (
    PADDINGS,
    STATES,
    Problem,
    assert_unchanged,
    gradients,
    in_float64,
    make_problem,
)
from tests.helpers.recurrences import ordered_neurons

OPERATOR = native.OPERATOR
built = needs_operator(OPERATOR)

# Odd sizes, chunks across vectors, more and fewer rows than a register tile, and sizes of 1.
SHAPES = [(1, 1, 1, 1), (2, 2, 3, 2), (4, 3, 1, 5), (5, 7, 23, 1), (3, 33, 2, 3), (6, 13, 5, 10), (2, 6, 11, 17)]


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request, monkeypatch):
    use_instruction_set(OPERATOR, request.param, monkeypatch)


def assert_near_the_reference(problem: Problem, tolerance: float, used=(0, 1, 2, 3), **options):
    """Compares outputs, and gradients relative to the largest one."""
    double = in_float64(problem)
    outputs = ordered_neurons(*problem, "native", **options)
    expected = ordered_neurons(*double, "reference", **options)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=tolerance, check_dtype=False)
    found, expected = gradients(problem, "native", used, **options), gradients(double, "reference", used, **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= tolerance * max(1, theirs.abs().max())
    assert_unchanged(problem, double)


@pytest.mark.parametrize("shape", SHAPES)
@STATES
@PADDINGS
def test_values_and_gradients_equal_the_reference(instruction_set, shape, state, padding):
    problem = make_problem(*shape, torch.float32, state, padding)
    for kept in (None, torch.rand(problem.recurrent_weight.shape) < 0.5):
        assert_near_the_reference(problem, 5e-6, recurrent_scale=0.8, recurrent_mask=kept)


@built
@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 6),
    batch_size=st.integers(1, 15),
    num_chunks=st.integers(1, 20),
    chunk_size=st.integers(1, 9),
    padding=st.sampled_from([None, "everywhere"]),
)
def test_any_shape_equals_the_reference(length, batch_size, num_chunks, chunk_size, padding):
    assert_near_the_reference(
        make_problem(length, batch_size, num_chunks, chunk_size, torch.float32, padding=padding), 5e-6
    )


@built
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (3,), (0, 2), (1, 3)])
@pytest.mark.parametrize("padding", [None, "everywhere"])
def test_gradients_are_correct_for_any_outputs_in_the_loss(used, padding):
    assert_near_the_reference(make_problem(5, 3, 2, 3, torch.float32, padding=padding), 5e-6, used)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padding", [None, "left"])
@pytest.mark.parametrize("sequence_dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_products_only_lose_their_rounding(instruction_set, shape, padding, sequence_dtype):
    """The reference under autocast rounds the same operands, so its error is the bound."""
    problem = make_problem(*shape, torch.float32, padding=padding)
    problem = problem._replace(input_gates=problem.input_gates.detach().to(sequence_dtype).requires_grad_())
    exact = ordered_neurons(*in_float64(problem), "reference"), gradients(in_float64(problem), "reference")
    with torch.autocast("cpu", torch.bfloat16):
        outputs, actual_gradients = ordered_neurons(*problem, "native"), gradients(problem, "native")
    assert outputs.outputs.dtype == actual_gradients[0].dtype == sequence_dtype
    torch.testing.assert_close(outputs, exact[0], rtol=0, atol=0.02, check_dtype=False)
    for ours, theirs in zip(actual_gradients, exact[1], strict=True):
        assert (ours.double() - theirs).abs().max() <= 0.03 * theirs.abs().max() + 1e-3


@built
@pytest.mark.parametrize("shape", [(3, 1, 7, 3), (4, 5, 3, 11)])
def test_results_do_not_depend_on_the_number_of_threads(shape):
    problem = make_problem(*shape, torch.float32, padding="left")
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)  # until the end of the test
        results.append((*ordered_neurons(*problem, "native"), *gradients(problem, "native")))
    for other in results[1:]:
        for index, (ours, theirs) in enumerate(zip(results[0], other, strict=True)):
            if index != 5:  # the weight's gradient is PyTorch's own product
                assert torch.equal(ours, theirs)


@built
def test_calls_from_several_threads_are_independent():
    problems = [make_problem(20, 4, chunks, 4, torch.float32) for chunks in (3, 9, 5, 12)]
    expected = [gradients(problem, "native") for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda problem: gradients(problem, "native"), problems * 5))
    for ours, theirs in zip(results, expected * 5, strict=True):
        assert all(map(torch.equal, ours, theirs))


@built
def test_values_do_not_depend_on_gradients():
    problem = make_problem(7, 3, 4, 5, torch.float32, padding="right")
    expected = ordered_neurons(*problem, "native")
    with torch.no_grad():
        assert all(map(torch.equal, ordered_neurons(*problem, "native"), expected))


@built
def test_non_contiguous_inputs_are_read_correctly():
    problem = make_problem(5, 3, 4, 5, torch.float32, padding="left")
    spread = Problem(
        problem.input_gates.detach().transpose(0, 1).contiguous().transpose(0, 1),
        problem.recurrent_weight.detach().t().contiguous().t(),
        problem.hidden.detach().t().contiguous().t(),
        problem.cell.detach().transpose(1, 2).contiguous().transpose(1, 2),
        problem.mask.t().contiguous().t(),
    )
    assert all(map(torch.equal, ordered_neurons(*spread, "native"), ordered_neurons(*problem, "native")))


def test_extreme_gates_saturate(instruction_set):
    problem = make_problem(2, 2, 3, 5, torch.float32)
    values = torch.tensor([-math.inf, -1e30, -200.0, -1e-30, 0.0, 1e-30, 200.0, 1e30])
    gates = values.repeat(problem.input_gates.numel() // len(values) + 1)[: problem.input_gates.numel()]
    gates = gates.view_as(problem.input_gates).clone()
    gates[..., :6] = problem.input_gates[..., :6].detach()  # a softmax of infinities is not defined
    extreme = problem._replace(input_gates=gates)
    with torch.no_grad():
        expected = ordered_neurons(*in_float64(extreme), "reference")
        outputs = ordered_neurons(*extreme, "native")
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6, check_dtype=False)


def test_nan_stays_in_its_row(instruction_set):
    problem = make_problem(3, 8, 3, 7, torch.float32)
    gates = problem.input_gates.detach().clone()
    gates[1, 2, -1] = gates[1, 5, 0] = math.nan
    with torch.no_grad():
        outputs = ordered_neurons(gates, *problem[1:], "native").outputs
    assert outputs[:, 2].isnan().any()
    assert outputs[:, 5].isnan().any()
    others = [row for row in range(8) if row not in (2, 5)]
    expected = ordered_neurons(*problem, "native").outputs
    assert torch.equal(outputs[:, others], expected[:, others])
