"""Tests of the Triton path in Triton's interpreter on the CPU.

`test_onlstm_triton.py` runs this in another process, since the interpreter must be chosen before Triton is imported.
Forward and backward pass take about 40 ms per row and step, for all sizes.
"""

import os
from functools import partial

import pytest
import torch

from onlstm_hf.fast.onlstm import operator as onlstm_module
from onlstm_hf.fast.onlstm import triton as module
from onlstm_hf.fast.recurrence.step_graphs import KeptBuffers
from tests.helpers import onlstm_problems
from tests.helpers.cuda_graph_stand_in import stand_in_graphs  # noqa: F401
from tests.helpers.onlstm_problems import assert_near, gradients, in_float64, make_problem
from tests.helpers.recurrences import ordered_neurons

assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.fixture(autouse=True)
def triton_on_the_cpu(monkeypatch):
    path = module.PATH._replace(unsupported_reason=lambda sequence: None)
    monkeypatch.setitem(onlstm_module._PATHS, "triton", path)
    monkeypatch.setattr(module, "KEPT", KeptBuffers())


check = partial(onlstm_problems.check, tolerance=5e-5)


@pytest.mark.parametrize(
    ("length", "batch_size", "num_chunks", "chunk_size"),
    [(1, 1, 1, 1), (1, 2, 3, 2), (4, 3, 1, 5), (5, 2, 6, 1), (7, 2, 3, 4)],
)
# A kernel computes one step, so the side of the padding does not matter.
@pytest.mark.parametrize("padding", [None, "everywhere"])
def test_it_computes_the_reference(length, batch_size, num_chunks, chunk_size, padding):
    check(make_problem(length, batch_size, num_chunks, chunk_size, torch.float32, padding=padding))


@pytest.mark.parametrize(
    ("num_chunks", "chunk_size"), [(115, 10), (300, 1), (1, 300), (33, 33), (17, 3), (64, 4), (1200, 1)]
)
def test_it_computes_the_reference_at_sizes_of_several_programs_a_row(num_chunks, chunk_size):
    check(make_problem(2, 2, num_chunks, chunk_size, torch.float32, padding="everywhere"))


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (3,), (0, 2), (1, 3)])
@pytest.mark.parametrize("padding", [None, "everywhere"])
def test_gradients_are_correct_for_any_outputs_in_the_loss(used, padding):
    check(make_problem(3, 2, 2, 3, torch.float32, padding=padding), used=used)


@pytest.mark.parametrize("length", [1, 7])
def test_outputs_are_the_same_without_gradients(length):
    problem = make_problem(length, 2, 5, 4, torch.float32, padding="left")
    with torch.no_grad():
        outputs = ordered_neurons(*problem, "triton")
    assert all(map(torch.equal, outputs, ordered_neurons(*problem, "triton")))


def test_logits_of_any_size_give_finite_gates():
    problem = make_problem(4, 2, 6, 3, torch.float32)
    check(problem._replace(input_gates=(problem.input_gates.detach() * 50).requires_grad_()))


@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [None, "everywhere"])
def test_products_in_bfloat16_stay_close(input_dtype, padding):
    problem = make_problem(3, 2, 4, 4, torch.float32, padding=padding)
    problem = problem._replace(input_gates=problem.input_gates.detach().to(input_dtype).requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        assert ordered_neurons(*problem, "triton").outputs.dtype == input_dtype
        check(problem, tolerance=0.015)


def test_half_precision_sequences_are_computed_in_float32():
    problem = make_problem(40, 2, 4, 4, torch.bfloat16, padding="everywhere")
    outputs, expected = ordered_neurons(*problem, "triton"), ordered_neurons(*in_float64(problem), "reference")
    torch.testing.assert_close(outputs.outputs.double(), expected.outputs, rtol=2**-7, atol=1e-5)
    assert_near(outputs.cell, expected.cell, 3e-6)


def test_the_recurrent_weight_is_scaled():
    problem = make_problem(5, 2, 3, 2, torch.float32)
    expected = problem._replace(recurrent_weight=problem.recurrent_weight * 0.25)
    for length in (1, 5):
        scaled, plain = (p._replace(input_gates=p.input_gates[:length]) for p in (problem, expected))
        outputs = ordered_neurons(*scaled, "triton", recurrent_scale=0.25)
        torch.testing.assert_close(outputs, ordered_neurons(*plain, "triton"))


def test_recorded_steps_compute_the_same_at_every_length(stand_in_graphs):  # noqa: F811
    for length, padding in ((21, None), (16, "everywhere"), (4, None), (5, "everywhere")):
        check(make_problem(length, 1, 3, 2, torch.float32, padding=padding))
    assert stand_in_graphs.recorded == 4  # two block sizes in two directions
    assert stand_in_graphs.replayed >= 10


def test_recorded_steps_of_several_layers_may_take_turns(stand_in_graphs):  # noqa: F811
    """Both layers have the same sizes, hence the same buffers, and gradients are computed twice."""
    problems = [make_problem(20, 1, 3, 2, torch.float32, padding=padding) for padding in (None, "everywhere")]
    outputs = [ordered_neurons(*problem, "triton").outputs for problem in problems]
    for problem, output in [*zip(problems, outputs, strict=True)] * 2:
        (ours,) = torch.autograd.grad(output.square().sum(), problem.input_gates, retain_graph=True)
        wide = in_float64(problem)
        reference = ordered_neurons(*wide, "reference").outputs
        (theirs,) = torch.autograd.grad(reference.square().sum(), wide.input_gates)
        assert_near(ours, theirs, 5e-5)
    assert stand_in_graphs.recorded == 4


def test_nan_does_not_stay_in_kept_buffers():
    problem = make_problem(4, 1, 3, 2, torch.float32)
    broken = problem._replace(input_gates=problem.input_gates.detach() * float("nan"))
    broken.input_gates.requires_grad_()
    assert gradients(broken, "triton")[1].isnan().all()
    check(problem)


def test_buffers_of_inference_mode_can_be_used_in_training():
    problem = make_problem(4, 1, 3, 2, torch.float32)
    with torch.inference_mode():
        ordered_neurons(*problem, "triton")
    check(problem)
