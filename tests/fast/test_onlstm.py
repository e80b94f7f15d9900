import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm_hf.fast.onlstm import native
from onlstm_hf.models.modeling_onlstm import cumax
from tests.helpers.native_operators import needs_operator
from tests.helpers.onlstm_problems import PADDINGS, SHAPES, STATES, Problem, gradients, make_problem
from tests.helpers.recurrences import ordered_neurons

built = needs_operator(native.OPERATOR)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def cumulative_softmax(values: list[float]) -> list[float]:
    exponentials = [math.exp(value) for value in values]
    return [sum(exponentials[: index + 1]) / sum(exponentials) for index in range(len(values))]


def step_by_the_equations(gates: list[float], cell: list[list[float]]):
    """Computes one step of one sequence by the paper's equations in scalars; returns h, c and both distances."""
    num_chunks, chunk_size = len(cell), len(cell[0])
    size = num_chunks * chunk_size
    starts = [0, num_chunks, 2 * num_chunks, *(2 * num_chunks + part * size for part in (1, 2, 3, 4))]
    mi_, mf_, c_, i_, f_, o_ = (gates[start:end] for start, end in zip(starts, starts[1:], strict=False))
    mf = cumulative_softmax(mf_)
    mi = [1 - value for value in cumulative_softmax(mi_)]
    new_cell, hidden = [], []
    for chunk in range(num_chunks):
        w = mf[chunk] * mi[chunk]
        new_cell.append([])
        for unit in range(chunk_size):
            k = chunk * chunk_size + unit
            f = sigmoid(f_[k]) * w + (mf[chunk] - w)
            i = sigmoid(i_[k]) * w + (mi[chunk] - w)
            c = f * cell[chunk][unit] + i * math.tanh(c_[k])
            new_cell[-1].append(c)
            hidden.append(sigmoid(o_[k]) * math.tanh(c))
    return hidden, new_cell, 1 - sum(mf) / num_chunks, sum(mi) / num_chunks


def run_by_the_equations(problem: Problem):
    """Returns outputs `[T][B]`, last cell `[B]`, and both distances `[T][B]` as lists."""
    input_gates, weight = problem.input_gates.tolist(), problem.recurrent_weight.tolist()
    hidden, cell = problem.hidden.tolist(), problem.cell.tolist()
    outputs, forget_distances, input_distances = [], [], []
    for step in range(len(input_gates)):
        forget_distances.append([])
        input_distances.append([])
        for row, from_input in enumerate(input_gates[step]):
            gates = [
                gate + sum(w * h for w, h in zip(column, hidden[row], strict=True))
                for gate, column in zip(from_input, weight, strict=True)
            ]
            new_hidden, new_cell, forget_distance, input_distance = step_by_the_equations(gates, cell[row])
            forget_distances[-1].append(forget_distance)
            input_distances[-1].append(input_distance)
            if problem.mask is None or problem.mask[step, row]:
                hidden[row], cell[row] = new_hidden, new_cell
        outputs.append(list(hidden))
    return outputs, cell, forget_distances, input_distances


@SHAPES
@STATES
@PADDINGS
def test_the_reference_computes_the_equations(length, batch_size, num_chunks, chunk_size, state, padding):
    problem = make_problem(length, batch_size, num_chunks, chunk_size, state=state, padding=padding)
    outputs = ordered_neurons(*problem, "reference")
    for output, expected in zip(outputs, run_by_the_equations(problem), strict=True):
        torch.testing.assert_close(output, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@built
def test_gradients_may_be_needed_for_some_arguments_only():
    problem = make_problem(4, 2, 2, 2, torch.float32)
    expected = gradients(problem, "native")[1]
    frozen = Problem(*(tensor.detach() for tensor in problem.differentiable()), None)
    frozen.recurrent_weight.requires_grad_()
    outputs = ordered_neurons(*frozen, "native")
    generator = torch.Generator().manual_seed(0)
    sum((torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o) * o).sum() for o in outputs).backward()
    torch.testing.assert_close(frozen.recurrent_weight.grad, expected)
    assert frozen.input_gates.grad is None


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_masked_steps_have_no_effect(data):
    length = data.draw(st.integers(1, 8))
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=length, max_size=length)))
    problem = make_problem(length, 1, 2, 3)
    padded = ordered_neurons(*problem[:4], mask.unsqueeze(-1), "reference")
    if not mask.any():
        assert torch.equal(padded.cell, problem.cell)
        assert torch.equal(padded.outputs, problem.hidden.expand(length, 1, -1))
        return
    compact = ordered_neurons(problem.input_gates[mask], *problem[1:4], None, "reference")
    torch.testing.assert_close(padded.cell, compact.cell)
    for name in ("outputs", "forget_distances", "input_distances"):
        torch.testing.assert_close(getattr(padded, name)[mask], getattr(compact, name))


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_sequence_can_be_split_anywhere(data):
    length = data.draw(st.integers(2, 8))
    cut = data.draw(st.integers(1, length - 1))
    problem = make_problem(length, 2, 3, 2, padding="everywhere")
    whole = ordered_neurons(*problem, "reference")
    first = ordered_neurons(problem.input_gates[:cut], *problem[1:4], problem.mask[:cut], "reference")
    rest = problem.input_gates[cut:], problem.recurrent_weight, first.outputs[-1], first.cell, problem.mask[cut:]
    second = ordered_neurons(*rest, "reference")
    torch.testing.assert_close(second.cell, whole.cell)
    for name in ("outputs", "forget_distances", "input_distances"):
        torch.testing.assert_close(torch.cat([getattr(first, name), getattr(second, name)]), getattr(whole, name))


@pytest.mark.parametrize("implementation", ["reference", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_autocast_stays_close_to_float32(implementation, dtype):
    problem = make_problem(9, 3, 4, 4, torch.float32, padding="left")
    expected, expected_gradients = ordered_neurons(*problem, "reference"), gradients(problem, "reference")
    given_gates = problem._replace(input_gates=problem.input_gates.detach().to(dtype).requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        outputs = ordered_neurons(*given_gates, implementation)
        actual_gradients = gradients(given_gates, implementation)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=0.03, check_dtype=False)
    for actual, wanted in zip(actual_gradients, expected_gradients, strict=True):
        assert (actual.float() - wanted).abs().max() < 0.03 * wanted.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", ["reference", "auto"])
def test_half_precision_weights_are_computed_in_float32(dtype, implementation):
    """So half precision only rounds inputs and outputs, and errors do not grow over time."""
    problem = make_problem(40, 2, 4, 4, dtype)
    wide = Problem(*(tensor.detach().float() for tensor in problem.differentiable()), None)
    outputs, expected = ordered_neurons(*problem, implementation), ordered_neurons(*wide, "reference")
    assert outputs.outputs.dtype == dtype
    torch.testing.assert_close(outputs.outputs, expected.outputs.to(dtype))
    torch.testing.assert_close(outputs.cell, expected.cell)


@pytest.mark.parametrize("implementation", ["reference", "auto"])
@pytest.mark.parametrize("scale", [1.0, 0.55, 0.0])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_recurrent_weight_is_scaled_and_masked(implementation, scale, dropped, precision):
    problem = make_problem(6, 3, 4, 5, torch.float32, padding="left")
    weight = problem.recurrent_weight.detach()
    kept = torch.rand(weight.shape) < 0.6 if dropped else None
    factors = scale * (torch.ones_like(weight) if kept is None else kept)
    folded = problem._replace(recurrent_weight=(weight * factors).requires_grad_())
    expected = (*ordered_neurons(*folded, "reference"), *gradients(folded, "reference"))
    options = {"recurrent_scale": scale, "recurrent_mask": kept}
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        outputs = ordered_neurons(*problem, implementation, **options)
        ours = (*outputs, *gradients(problem, implementation, **options))
    tolerance = 1e-5 if precision == torch.float32 else 0.03
    for index, (actual, wanted) in enumerate(zip(ours, expected, strict=True)):
        wanted = wanted * factors if index == 5 else wanted  # gradient of the weight before scaling and masking
        assert (actual - wanted).abs().max() <= tolerance * max(1, wanted.abs().max())


def test_cumax_rises_from_zero_to_one():
    torch.manual_seed(0)
    gate = cumax(torch.randn(5, 7, dtype=torch.float64))
    assert (gate.diff(dim=-1) > 0).all()
    assert (gate > 0).all()
    torch.testing.assert_close(gate[:, -1], torch.ones(5, dtype=torch.float64))


@built
def test_second_derivatives_need_the_reference():
    problem = make_problem(3, 1, 2, 1, torch.float32)
    with pytest.raises(RuntimeError, match="ordered_neurons_backward"):
        outputs = ordered_neurons(*problem, "native").outputs
        (gradient,) = torch.autograd.grad(outputs.sum(), problem.hidden, create_graph=True)
        gradient.sum().backward()
    problem = make_problem(3, 1, 2, 1)
    assert torch.autograd.gradgradcheck(
        lambda *tensors: ordered_neurons(*tensors, None, "reference").outputs, problem.differentiable()
    )


def test_scan_has_the_gradients_of_the_reference():
    for sizes in ((7, 3, 2, 3), (5, 2, 3, 4), (3, 4, 2, 5), (6, 1, 4, 3)):
        problem = make_problem(*sizes)
        torch.testing.assert_close(gradients(problem, "scan"), gradients(problem, "reference"))


@pytest.mark.parametrize(
    ("name", "shape"),
    {
        "input_gates": (5, 2, 53),
        "recurrent_weight": (54, 11),
        "hidden": (1, 12),
        "cell": (3, 3, 4),
        "mask": (5, 1),
        "recurrent_mask": (54, 11),
    }.items(),
)
@built
def test_shapes_that_do_not_fit_are_refused(name, shape):
    arguments = make_problem(5, 2, 3, 4, torch.float32, padding="left")._asdict() | {name: torch.ones(shape)}
    with pytest.raises(ValueError, match=r" must be \[.*\], not \["):
        ordered_neurons(**arguments, implementation="native")
