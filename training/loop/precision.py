"""Gain of a CPU by bfloat16."""

import time

import torch

from onlstm_hf.fast.linear import matmul

# Large enough that the products outweigh the call, and short even on a CPU that has no bfloat16 at all.
SIZE, REPETITIONS = 192, 5


def bfloat16_speed() -> float:
    """The speed of a product of bfloat16 matrices as a multiple of that in float32, measured on this CPU.

    The instructions of a CPU do not tell: one with AVX-512 BF16 was slower in it than in float32. The two products
    take turns in one thread, and of each the least time of the CPU counts, which other work on the machine hardly
    changes.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    factors = {dtype: torch.ones(SIZE, SIZE, dtype=dtype) for dtype in seconds}
    for _ in range(1 + REPETITIONS):
        for dtype, factor in factors.items():
            start = time.thread_time()
            matmul(factor, factor)
            seconds[dtype].append(time.thread_time() - start)
    torch.set_num_threads(num_threads)
    # The first product of each also loads the library.
    in_float32, in_bfloat16 = (min(times[1:]) for times in seconds.values())
    return in_float32 / in_bfloat16
