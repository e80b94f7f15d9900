import pytest
import torch

from onlstm_hf.models.modeling_prpn import DeviationNorm


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 1e-9])
def test_values_and_gradients_follow_the_definition(scale):
    torch.manual_seed(0)
    norm = DeviationNorm(5).double()
    with torch.no_grad():
        norm.weight.uniform_()
        norm.bias.uniform_()
    inputs = (torch.randn(3, 2, 5, dtype=torch.float64) * scale + 2).requires_grad_()
    deviation = inputs.std(dim=-1, keepdim=True) + 1e-6
    expected = norm.weight * (inputs - inputs.mean(dim=-1, keepdim=True)) / deviation + norm.bias
    outputs = norm(inputs)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-7)
    upstream = torch.randn_like(outputs)
    gradients = [torch.autograd.grad(values, [inputs, *norm.parameters()], upstream) for values in (outputs, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_values_become_zero_and_have_a_finite_gradient(dtype):
    inputs = torch.full((2, 4), 3.0, dtype=dtype, requires_grad=True)
    outputs = DeviationNorm(4).to(dtype)(inputs)
    assert not outputs.any()
    outputs.sum().backward()
    assert inputs.grad.isfinite().all()
