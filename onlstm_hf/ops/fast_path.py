"""What a fast path of the ordered-neurons recurrence is made of, and how one is chosen for any recurrence."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import torch

Path = TypeVar("Path")


class FastPath(NamedTuple):
    """One way to run the recurrence of a layer over a sequence, with a hand-derived backward pass.

    Shapes are those of `ordered_neurons`. The sequences (input gates, outputs and their gradients) are bfloat16 or of
    the same dtype as the rest, which is float32 or float64.

    Attributes:
        forward: `(input_gates, recurrent_weight, hidden, cell, mask, recurrent_scale, product_in_bfloat16,
            save_for_backward)` to outputs `[T, B, H]`, the last cell state `[B, C, K]`, and the means over chunks of
            master input and master forget gate `[T, B, 2]`; then what `backward` needs, with `T = 0` unless
            `save_for_backward`: the cell states before each step `[T, B, H]`, the softmaxes behind the master gates
            `[T, B, 2, C]`, and the activated candidate, input, forget and output gates `[T, B, 4, H]`.
        backward: `(grad_outputs, grad_last_cell, grad_distances, outputs, last_cell, cells, softmaxes, activations,
            recurrent_weight, mask, recurrent_scale, product_in_bfloat16)` to the gradients of the input gates, and of
            the first hidden `[B, H]` and cell state `[B, C, K]`. The first three may be `None`.
        obstacle: why the path cannot run on a sequence `[T, B, ...]`, or `None` where it can.
        is_worthwhile: whether it should be chosen for one, before the slower ones.
        takes_recurrent_mask: whether `forward` and `backward` have a last argument `recurrent_mask`, `[G, H]` booleans
            or `None`, and read the weight through it; the others are given the product of both.
    """

    forward: Callable[..., tuple[torch.Tensor, ...]]
    backward: Callable[..., tuple[torch.Tensor, ...]]
    obstacle: Callable[[torch.Tensor], str | None]
    is_worthwhile: Callable[[torch.Tensor], bool]
    takes_recurrent_mask: bool = False


def choose_path(paths: Mapping[str, Path], implementation: str, sequence: torch.Tensor) -> Path:
    """The fast path that was asked for, or with `"auto"` the first that fits the inputs or outputs of a recurrence.

    Args:
        paths: by name, from the fastest on, each with `obstacle` and `is_worthwhile`.
        implementation: one of the names, or `"auto"`.
        sequence: in the layout that the paths expect.

    Raises:
        ValueError: if the path that was asked for cannot run on such a sequence.
    """
    if implementation == "auto":
        return next(path for path in paths.values() if path.is_worthwhile(sequence))
    path = paths[implementation]
    obstacle = path.obstacle(sequence)
    if obstacle:
        raise ValueError(f"the {implementation} implementation cannot run here: {obstacle}")
    return path
