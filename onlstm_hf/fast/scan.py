"""The loop over time as one operator of an exported graph."""

from collections.abc import Callable

import torch
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree


def scan_operator(step: Callable, state: tuple, sequences: tuple[torch.Tensor | None, ...]) -> tuple[tuple, tuple]:
    """Computes `loop` of `models/state.py` as one operator, in a graph of any length.

    Use it only in graphs. Elsewhere the operator compiles the step for every shape. Its gradient fails (PyTorch 2.13)
    once several shapes have made sizes symbolic.
    """
    given = [entries for entries in sequences if entries is not None]

    def step_on_given(state, entries):
        remaining = iter(entries)
        state, outputs = step(state, tuple(None if entry is None else next(remaining) for entry in sequences))
        # The operator does not allow a tensor that is both state and output.
        return state, pytree.tree_map(torch.clone, outputs)

    return scan(step_on_given, state, given)
