"""Fake tensors, as in tracing by the compiler, on devices that this machine may lack."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from onlstm_hf.fast.onlstm import native as onlstm_native
from onlstm_hf.fast.onlstm.operator import RECURRENCE as ONLSTM
from onlstm_hf.fast.prpn import native as prpn_native
from onlstm_hf.fast.prpn.operator import RECURRENCE as PRPN
from tests.helpers.native_operators import needs_operator


def onlstm_inputs(device):
    length, batch_size, num_chunks, chunk_size = 5, 3, 4, 2
    size = num_chunks * chunk_size
    num_gates = 2 * num_chunks + 4 * size
    mask = torch.ones(length, batch_size, dtype=torch.bool, device=device)
    shapes = (
        (length, batch_size, num_gates),
        (num_gates, size),
        (batch_size, size),
        (batch_size, num_chunks, chunk_size),
    )
    gates, weight, hidden, cell = (torch.randn(shape, device=device, requires_grad=True) for shape in shapes)
    kept = torch.ones(num_gates, size, dtype=torch.bool, device=device)
    return ONLSTM.Inputs(gates, weight, hidden, cell, mask, kept), ONLSTM.Options(0.9, False, True)


def prpn_inputs(device):
    batch_size, length, num_slots, size = 3, 5, 4, 6

    def random(*shape):
        return torch.randn(shape, device=device, requires_grad=True)

    vectors = (random(width * size) for width in (4, 4, 4, 1, 1))
    weights = random(size, size), random(4 * size, size), *vectors
    sequences = random(batch_size, length, 4 * size), random(batch_size, length, size)
    gates, memories = random(batch_size, length, num_slots), random(batch_size, num_slots, 2, size)
    masks = None, torch.ones(batch_size, length, size, device=device)
    return PRPN.Inputs(*sequences, *weights, gates, memories, *masks), PRPN.Options(False, True)


RECURRENCES = pytest.mark.parametrize(
    ("recurrence", "make"), [(ONLSTM, onlstm_inputs), (PRPN, prpn_inputs)], ids=["onlstm", "prpn"]
)


@needs_operator(onlstm_native.OPERATOR)
@needs_operator(prpn_native.OPERATOR)
@RECURRENCES
def test_operators_pass_opcheck(recurrence, make):
    """Checks the schema, the shapes on fake tensors, and the registration with autograd."""
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    inputs, options = make("cpu")
    torch.library.opcheck(recurrence.forward_operator, (*inputs, *options, "native"), test_utils=checks)


@RECURRENCES
def test_the_backward_pass_is_a_separate_operator(recurrence, make):
    """Paths need the addresses of tensors, so none may run while the compiler traces."""
    with FakeTensorMode(allow_non_fake_inputs=False):
        inputs, options = make("cpu")
        trace = recurrence.Trace(*recurrence.forward_operator(*inputs, *options, "native"))
        variables = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
        gradients = torch.autograd.grad(trace[0].sum(), variables)
    for gradient, variable in zip(gradients, variables, strict=True):
        assert gradient.shape == variable.shape


@RECURRENCES
def test_on_a_gpu_both_operators_are_opaque(recurrence, make):
    """Runs without a GPU."""
    with FakeTensorMode(allow_non_fake_inputs=False), torch.no_grad():
        inputs, options = make("cuda")
        trace = recurrence.Trace(*recurrence.forward_operator(*inputs, *options, "triton"))
        kept = recurrence.kept_inputs(inputs)
        gradients = recurrence.backward_operator(*trace, *trace, *kept, *options, "triton")
    differentiable = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in differentiable]
    assert {tensor.device.type for tensor in (*trace, *gradients)} == {"cuda"}
