"""A loop over the steps of a sequence, in Python or as an operator of PyTorch.

Both call `step(state, entries)` with the state and the entries of one step, and it returns the next state and what
comes out of the step. They return the last state and all outputs, stacked.
"""

from collections.abc import Callable
from itertools import repeat
from typing import TypeVar

import torch
from torch.utils import _pytree as pytree

State = TypeVar("State")
Sequences = tuple[torch.Tensor | None, ...]
Outputs = tuple[torch.Tensor, ...]
Step = Callable[[State, Sequences], tuple[State, Outputs]]


def loop(step: Step, state: State, sequences: Sequences) -> tuple[State, Outputs]:
    """One step after the other.

    Args:
        step: what to do; see above.
        state: tensors, before the first step.
        sequences: `[T, ...]` each, or, but for the first, `None`, which every step is given as it is.
    """
    steps = [repeat(None) if entries is None else entries.unbind(0) for entries in sequences]
    outputs = []
    for entries in zip(*steps, strict=False):
        state, output = step(state, entries)
        outputs.append(output)
    return state, tuple(torch.stack(entries) for entries in zip(*outputs, strict=True))


def scan(step: Step, state: State, sequences: Sequences) -> tuple[State, Outputs]:
    """The same, in a graph as one operator: in an exported graph the number of steps is then no part of the graph.

    Where no graph is made it is the loop itself: the operator would compile the step for every shape, and its
    gradient fails (PyTorch 2.13) once it has seen so many that it takes sizes for symbols.
    """
    if not torch.compiler.is_compiling():
        return loop(step, state, sequences)
    from torch._higher_order_ops.scan import scan as torch_scan

    given = [entries for entries in sequences if entries is not None]

    def step_on_given(state: State, entries: list[torch.Tensor]) -> tuple[State, Outputs]:
        remaining = iter(entries)
        state, outputs = step(state, tuple(None if entry is None else next(remaining) for entry in sequences))
        # The operator does not allow a tensor that is both state and output.
        return state, pytree.tree_map(torch.clone, outputs)

    return torch_scan(step_on_given, state, given)


# How the definition of a recurrence is run, by the name of the implementation.
LOOPS = {"reference": loop, "scan": scan}
