"""Contract of a fast path, the same for every recurrence, and the choice among paths.

To add a path, write a file with a `FastPath` in the folder of its recurrence, and add a line to its table of paths.
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
            gradients of the results, or `None` for a result without one. Fields of `inputs` that the recurrence's
            `kept_inputs` drops are `None`.
        unsupported_reason: says why the path cannot run on a layer's input; `None` if it can.
        is_worthwhile: whether `"auto"` may choose the path for a layer's input that it supports.
    """

    forward: Callable[[tuple, tuple], tuple]
    backward: Callable[[tuple, tuple, tuple, tuple], tuple]
    unsupported_reason: Callable[[torch.Tensor], str | None] = lambda sequence: None
    is_worthwhile: Callable[[torch.Tensor], bool] = lambda sequence: True


def choose_path(paths: Mapping[str, FastPath], implementation: str, sequence: torch.Tensor) -> str | None:
    """Returns the name of the path to use: the requested one, or for `"auto"` the first suitable one or `None`.

    Args:
        paths: by name, fastest first.
        implementation: one of the names, or `"auto"`.
        sequence: the input of the layer.

    Raises:
        ValueError: if the path is unknown, or cannot run on the sequence.
    """
    if implementation == "auto":
        for name, path in paths.items():
            # Compiled code must not depend on the length, so it takes the first supported path.
            is_worthwhile = torch.compiler.is_compiling() or path.is_worthwhile(sequence)
            if is_worthwhile and path.unsupported_reason(sequence) is None:
                return name
        return None
    if implementation not in paths:
        raise ValueError(f"implementation must be one of auto, {', '.join(paths)}, not {implementation!r}")
    reason = paths[implementation].unsupported_reason(sequence)
    if reason:
        raise ValueError(f"the {implementation} implementation cannot run here: {reason}")
    return implementation
