import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from onlstm_hf.fast import linear as linear_module
from onlstm_hf.fast.linear import Linear, linear, matmul


@pytest.mark.parametrize("shape", [(4, 7), (3, 5, 7), (1, 1, 7)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_equal_the_plain_product(shape, with_bias):
    torch.manual_seed(0)
    tensors = [torch.randn(*shape), torch.randn(9, 7), *([torch.randn(9)] if with_bias else [])]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    weights = torch.randn(*shape[:-1], 9)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    torch.testing.assert_close(linear(*tensors).double(), F.linear(*exact), rtol=0, atol=1e-5)
    ours = torch.autograd.grad((linear(*tensors) * weights).sum(), tensors)
    theirs = torch.autograd.grad((F.linear(*exact) * weights).sum(), exact)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5, check_dtype=False)


def test_results_can_be_changed_in_place():
    inputs, weight = torch.randn(3, 5, 7), torch.randn(9, 7, requires_grad=True)
    outputs = linear(inputs, weight)
    outputs += 1
    (outputs**2).sum().backward()
    expected = torch.autograd.grad(((F.linear(inputs, weight) + 1) ** 2).sum(), weight)[0]
    torch.testing.assert_close(weight.grad, expected)


LAYOUTS = {
    "by rows": lambda matrix: matrix,
    "transposed": lambda matrix: matrix.t().contiguous().t(),
    "part of another": lambda matrix: torch.cat([matrix, matrix], dim=1)[:, : matrix.shape[1]],
}


@pytest.mark.parametrize("left_layout", LAYOUTS)
@pytest.mark.parametrize("right_layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 4, 5), (5, 4, 3), (1, 1, 1), (1, 7, 2), (2, 1, 3)])
@pytest.mark.parametrize("worth_a_copy", [1, 1000])
def test_products_of_any_layout_and_their_gradients(left_layout, right_layout, shape, worth_a_copy, monkeypatch):
    monkeypatch.setattr(linear_module, "_MIN_SIZE_TO_COPY", worth_a_copy)
    torch.manual_seed(0)
    rows, inner, columns = shape
    left = LAYOUTS[left_layout](torch.randn(rows, inner)).requires_grad_()
    right = LAYOUTS[right_layout](torch.randn(inner, columns)).requires_grad_()
    product = matmul(left, right)
    assert product.is_contiguous()
    torch.testing.assert_close(product.double(), left.double() @ right.double(), rtol=0, atol=1e-5)
    weights = torch.randn(rows, columns)
    ours = torch.autograd.grad(product, [left, right], weights, create_graph=True)
    theirs = torch.autograd.grad(left.double() @ right.double(), [left, right], weights.double(), create_graph=True)
    again = [torch.autograd.grad(sum(grad.square().sum() for grad in grads), left)[0] for grads in (ours, theirs)]
    torch.testing.assert_close([*ours, again[0]], [*theirs, again[1]], rtol=1e-5, atol=1e-5, check_dtype=False)


def test_a_layer_equals_that_of_pytorch():
    torch.manual_seed(0)
    layer, inputs = Linear(4, 5), torch.randn(3, 2, 4)
    expected = F.linear(inputs, layer.weight, layer.bias)
    torch.testing.assert_close(layer(inputs), expected)
    layer.implementation = "reference"
    assert torch.equal(layer(inputs), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_kept(dtype):
    inputs, weight = torch.randn(3, 4, dtype=dtype), torch.randn(5, 4, dtype=dtype)
    assert torch.equal(linear(inputs, weight), F.linear(inputs, weight))


def test_autocast_is_respected():
    inputs, weight = torch.randn(3, 4), torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(inputs, weight).dtype == torch.bfloat16


def test_an_empty_batch_is_possible():
    assert linear(torch.randn(0, 4), torch.randn(5, 4)).shape == (0, 5)


def test_it_can_be_compiled():
    inputs, weight = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)
    compiled = torch.compile(linear, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs, weight), linear(inputs, weight))


FEWER_THREADS = """
import torch
from onlstm_hf.fast.linear import linear, uses_onednn

torch.set_num_threads(2)
inputs, weight = torch.randn(640, 400), torch.randn(1680, 400)
assert not uses_onednn(inputs, weight)
torch.testing.assert_close(linear(inputs, weight).double(), inputs.double() @ weight.double().T, rtol=1e-3, atol=1e-3)
"""


@pytest.mark.slow
def test_products_are_correct_with_fewer_threads_than_requested():
    subprocess.run([sys.executable, "-c", FEWER_THREADS], env=os.environ | {"OMP_THREAD_LIMIT": "1"}, check=True)
