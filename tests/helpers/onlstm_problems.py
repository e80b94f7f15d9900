"""Test problems of the ordered-neurons recurrence, and their gradients by any path."""

from typing import NamedTuple

import pytest
import torch

from tests.helpers.recurrences import ordered_neurons


class Problem(NamedTuple):
    """Arguments of `ordered_neurons`."""

    input_gates: torch.Tensor
    recurrent_weight: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor
    mask: torch.Tensor | None

    def differentiable(self) -> tuple[torch.Tensor, ...]:
        return self[:4]


def in_float64(problem: Problem) -> Problem:
    """Returns a copy of the problem in float64 with its own gradients."""
    return Problem(*(t.detach().double().requires_grad_() for t in problem.differentiable()), problem.mask)


def on_device(problem: Problem, device: str) -> Problem:
    return Problem(*(None if t is None else t.detach().to(device).requires_grad_(t.requires_grad) for t in problem))


def assert_near(actual, expected, tolerance: float = 1e-4) -> None:
    """Compares tensors, or sequences of them, by the relative error of a whole tensor; its scale is at least 1e-3."""
    if not isinstance(expected, torch.Tensor):
        for ours, theirs in zip(actual, expected, strict=True):
            assert_near(ours, theirs, tolerance)
        return
    assert actual.shape == expected.shape
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    error = (actual - expected).norm()
    assert error <= tolerance * expected.norm().clamp_min(expected.numel() ** 0.5 * 1e-3), error


def make_problem(length, batch_size, num_chunks, chunk_size, dtype=torch.float64, state="random", padding=None):
    torch.manual_seed(length + 10 * batch_size + 100 * num_chunks + 1000 * chunk_size)
    size = num_chunks * chunk_size
    num_gates = 2 * num_chunks + 4 * size
    tensors = [
        2 * torch.randn(length, batch_size, num_gates, dtype=torch.float64),
        torch.randn(num_gates, size, dtype=torch.float64) / size**0.5,
        torch.rand(batch_size, size, dtype=torch.float64) * 2 - 1,
        torch.randn(batch_size, num_chunks, chunk_size, dtype=torch.float64),
    ]
    if state == "zero":
        tensors[2:] = [tensor * 0 for tensor in tensors[2:]]
    return Problem(*(tensor.to(dtype).requires_grad_() for tensor in tensors), make_mask(padding, length, batch_size))


def make_mask(padding, length, batch_size):
    """Returns a mask `[T, B]` with different numbers of real steps; "everywhere" pads the last row fully."""
    if padding is None:
        return None
    real = torch.ones(length, batch_size, dtype=torch.bool)
    for row in range(batch_size):
        pads = min(row, length - 1)
        if padding == "left":
            real[:pads, row] = False
        elif padding == "right":
            real[length - pads :, row] = False
        else:
            real[:, row] = torch.arange(length) % (row + 2) != row
    if padding == "everywhere":
        real[:, -1] = False
    return real


def check(problem: Problem, device: str = "cpu", tolerance: float = 1e-4, used=(0, 1, 2, 3)) -> None:
    """Compares values and gradients of Triton on a device with the reference in float64."""
    wide, problem = in_float64(problem), on_device(problem, device)
    assert_near(ordered_neurons(*problem, "triton"), ordered_neurons(*wide, "reference"), tolerance)
    assert_near(gradients(problem, "triton", used), gradients(wide, "reference", used), tolerance)
    assert_unchanged(problem, wide)


def assert_unchanged(problem: Problem, copy: Problem) -> None:
    """Checks that the paths did not change their arguments, by a copy of any precision from before."""
    for tensor, before in zip(problem, copy, strict=True):
        assert tensor is None or torch.equal(tensor, before.to(tensor))


SHAPES = pytest.mark.parametrize(
    ("length", "batch_size", "num_chunks", "chunk_size"),
    [(1, 1, 1, 1), (1, 2, 3, 2), (4, 3, 1, 5), (5, 2, 6, 1), (7, 4, 3, 4), (13, 1, 2, 3)],
)
STATES = pytest.mark.parametrize("state", ["random", "zero"])
PADDINGS = pytest.mark.parametrize("padding", [None, "left", "right", "everywhere"])


def gradients(problem: Problem, implementation: str, used=(0, 1, 2, 3), **options):
    """Returns the gradients of a random function of the outputs at the positions in `used`."""
    outputs = ordered_neurons(*problem, implementation, **options)
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o) for o in outputs]
    value = sum((weights[index] * outputs[index]).sum() for index in used)
    return torch.autograd.grad(value, problem.differentiable(), allow_unused=True, materialize_grads=True)
