import pytest
import torch

from onlstm_hf.ops.convolution import Convolution


@pytest.mark.parametrize(
    ("kernel_size", "length"), [(1, 4), (3, 3), (3, 7), (4, 9), (5, 8), (6, 6), (6, 40), (11, 30)]
)
def test_a_convolution_is_that_of_pytorch(kernel_size, length):
    torch.manual_seed(0)
    layer, inputs = Convolution(4, 5, kernel_size), torch.randn(2, 4, length, requires_grad=True)
    exact = torch.nn.Conv1d(4, 5, kernel_size).double()
    exact.load_state_dict(layer.state_dict())
    exact_inputs = inputs.detach().double().requires_grad_()
    outputs, expected = layer(inputs), exact(exact_inputs)
    torch.testing.assert_close(outputs.double(), expected, rtol=0, atol=1e-5)
    weights = torch.randn_like(outputs)
    ours = torch.autograd.grad(outputs, [inputs, *layer.parameters()], weights)
    theirs = torch.autograd.grad(expected, [exact_inputs, *exact.parameters()], weights.double())
    for actual, gradient in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual.double(), gradient, rtol=0, atol=1e-5)
    layer.implementation = "reference"
    torch.testing.assert_close(layer(inputs), outputs)
