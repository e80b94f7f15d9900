"""The precision that sentences are parsed in."""

import torch

from ..fast.precision import bfloat16_speed

# Products are most of the time of parsing, but not all of it: where they gain less than this by bfloat16, the rest may
# lose as much.
WORTH_BFLOAT16 = 1.5


def parsing_dtype() -> str:
    """The type of weights with which trees are there soonest on this machine, `"bfloat16"` or `"float32"`.

    On a CPU whose products in bfloat16 are `WORTH_BFLOAT16` times as fast it is bfloat16: the F1 of a treebank changes
    by less than 0.1 (docs/speed.md), although single trees do change. With a GPU it is float32, as nothing was
    measured there.
    """
    if torch.cuda.is_available():
        return "float32"
    return "bfloat16" if bfloat16_speed() >= WORTH_BFLOAT16 else "float32"
