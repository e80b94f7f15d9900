"""Test problems of the PRPN's reading network: values and gradients of a path against the float64 reference."""

import torch
from torch.utils import _pytree as pytree

from tests.helpers.onlstm_problems import assert_near
from tests.helpers.recurrences import read_sequence

INPUT_SIZE = 5


def arguments(batch_size, length, num_slots, size, masks=True, dtype=torch.float64):
    """Returns the differentiable arguments of `read_sequence`, then its masks."""
    torch.manual_seed(0)

    def random(*shape):
        return torch.randn(shape, dtype=dtype, requires_grad=True)

    vectors = (random(width * size) for width in (4, 4, 4, 1, 1))
    weights = random(size, INPUT_SIZE + size), random(size), random(4 * size, size), *vectors
    gates = torch.rand(batch_size, length, num_slots, dtype=dtype).requires_grad_()
    memories = random(batch_size, num_slots, size), random(batch_size, num_slots, size)
    tensors = random(batch_size, length, 4 * size), random(batch_size, length, INPUT_SIZE), weights, gates, *memories
    if not masks:
        return tensors, (None, None, None)
    newest_keep, key_keep = torch.rand(2, batch_size, length, size, dtype=dtype).unbind()
    summary_keep = torch.rand(size, dtype=dtype) * torch.bernoulli(torch.full((size,), 0.5, dtype=dtype))
    return tensors, (newest_keep, key_keep, summary_keep)


def leaves(tensors):
    return pytree.tree_leaves(tensors)


def converted(tensors, device, dtype=torch.float32):
    """Copies the arguments of `read_sequence` to a device, as leaves with gradients."""

    return pytree.tree_map(lambda tensor: tensor.detach().to(device, dtype).requires_grad_(), tensors)


def check(sizes, masks, device, seed=0, tolerance=2e-4, implementation="triton"):
    """Compares values and all gradients of one problem; `sizes` are batch size, length, slots and units."""
    tensors, keep = arguments(*sizes, masks)
    torch.manual_seed(seed)
    with torch.no_grad():
        tensors[0].add_(torch.randn_like(tensors[0]))
        # Weights at the scale of trained ones; with larger weights rounding errors grow from step to step.
        for weight in (tensors[2][0], tensors[2][2]):
            weight.mul_(weight.shape[1] ** -0.5)
    narrow = converted(tensors, device)
    narrow_keep = [None if mask is None else mask.to(device, torch.float32) for mask in keep]
    expected = read_sequence(*tensors, *keep, implementation="reference")
    output = read_sequence(*narrow, *narrow_keep, implementation=implementation)
    assert_near(output, expected, tolerance)
    upstream = [torch.randn_like(tape) for tape in expected[:2]]
    theirs = torch.autograd.grad(expected[:2], leaves(tensors), upstream)
    ours = torch.autograd.grad(output[:2], leaves(narrow), [gradient.to(device).float() for gradient in upstream])
    assert_near(ours, theirs, tolerance)
