"""What a fast path of the ordered-neurons recurrence is made of."""

from collections.abc import Callable
from typing import NamedTuple

import torch


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
