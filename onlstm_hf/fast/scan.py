"""The loop over time as one operator of an exported graph."""

from collections.abc import Callable

import torch
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree


def scan_operator(step: Callable, state: tuple, sequences: tuple[torch.Tensor | None, ...]) -> tuple[tuple, tuple]:
    """Calls `state, outputs = step(state, entries)` for each step of the sequences, in a graph of any length.

    Use it only in graphs. Elsewhere the operator compiles the step for every shape. Its gradient fails (PyTorch 2.13)
    once several shapes have made sizes symbolic.

    Args:
        step: computes one step from the previous state and the entries of the sequences at that step.
        state: tensors, before the first step.
        sequences: `[T, ...]` each. One that is `None` gives `None` to every step.

    Returns:
        The last state, and the outputs of all steps, stacked along a first dimension.
    """
    given = [entries for entries in sequences if entries is not None]

    def step_on_given(state, entries):
        remaining = iter(entries)
        state, outputs = step(state, tuple(None if entry is None else next(remaining) for entry in sequences))
        # The operator does not allow a tensor that is both state and output.
        return state, pytree.tree_map(torch.clone, outputs)

    return scan(step_on_given, state, given)
