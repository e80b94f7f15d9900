"""Speed of bfloat16 matrix products on the CPU."""

from time import thread_time

import torch
from torch.utils.benchmark import Timer

from onlstm_hf.fast.linear import matmul

# Large enough that the product outweighs the call, and short even on a CPU without bfloat16 instructions.
SIZE, REPETITIONS = 192, 5


def bfloat16_speed() -> float:
    """Returns the speed of a bfloat16 matrix product relative to float32, measured on one thread of this CPU.

    CPU flags do not predict it: one CPU with AVX-512 BF16 was slower in bfloat16 than in float32.
    """
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        names = {"matmul": matmul, "factor": torch.ones(SIZE, SIZE, dtype=dtype)}
        timer = Timer("matmul(factor, factor)", globals=names, timer=thread_time, num_threads=1)
        # Other work on the machine hardly affects the minimum CPU time. `timeit` warms up first.
        seconds.append(min(timer.timeit(number=1).mean for _ in range(REPETITIONS)))
    return seconds[0] / seconds[1]
