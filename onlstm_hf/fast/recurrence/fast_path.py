"""Contract of a fast path, the same for every recurrence, and the choice of one.

To add one, write a file with a `FastPath` beside the others of its recurrence, and a line in its table of paths.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch


class FastPath(NamedTuple):
    """One way to compute a recurrence over a whole sequence, with a hand-derived backward pass.

    `Inputs`, `Options`, `Trace` and `Gradients` are the named tuples of the recurrence: for the ON-LSTM those of
    `onlstm/contract.py`, for the reading network of the PRPN those of `prpn/contract.py`.

    Attributes:
        forward: `(inputs, options)` to the `Trace`: the results, and what the backward pass needs.
        backward: `(grad_trace, trace, inputs, options)` to the `Gradients`. `grad_trace` is a `Trace` with the
            gradients of the results, `None` where there is none; of `inputs` only what `kept_inputs` of the recurrence
            lists is there, the rest is `None`.
        obstacle: why the path cannot run on a sequence like the layer's input, or `None` where it can.
        pays: whether `"auto"` should choose the path for a sequence that it can run on, if none before it is chosen.
    """

    forward: Callable[[tuple, tuple], tuple]
    backward: Callable[[tuple, tuple, tuple, tuple], tuple]
    obstacle: Callable[[torch.Tensor], str | None] = lambda sequence: None
    pays: Callable[[torch.Tensor], bool] = lambda sequence: True


def choose_path(paths: Mapping[str, FastPath], implementation: str, sequence: torch.Tensor) -> str | None:
    """The name of the path that was asked for, or with `"auto"` of the first one that pays, `None` if none does.

    Args:
        paths: by name, from the fastest on.
        implementation: one of the names, or `"auto"`.
        sequence: the input of the layer.

    Raises:
        ValueError: if there is no such path, or it cannot run on such a sequence.
    """
    if implementation == "auto":
        for name, path in paths.items():
            # Compiled code serves all lengths by one path.
            if (torch.compiler.is_compiling() or path.pays(sequence)) and path.obstacle(sequence) is None:
                return name
        return None
    if implementation not in paths:
        raise ValueError(f"implementation must be one of auto, {', '.join(paths)}, not {implementation!r}")
    obstacle = paths[implementation].obstacle(sequence)
    if obstacle:
        raise ValueError(f"the {implementation} implementation cannot run here: {obstacle}")
    return implementation
