"""The speed of bfloat16 on a CPU is measured."""

from itertools import chain, repeat

import pytest
import torch

from training.loop import precision
from training.loop.precision import bfloat16_speed


@pytest.fixture
def product_times(monkeypatch):
    """CPU seconds of the products by dtype, to be filled; the clock stands still but for these."""
    now, times = [0.0], {}

    def product(left, right):
        assert torch.get_num_threads() == 1
        now[0] += next(times[left.dtype])

    monkeypatch.setattr(precision, "matmul", product)
    monkeypatch.setattr(precision.time, "thread_time", lambda: now[0])
    return times


@pytest.mark.parametrize("in_bfloat16", [2.0, 8.0])
def test_the_shortest_times_are_compared_and_the_first_does_not_count(product_times, in_bfloat16):
    product_times[torch.float32] = chain([1.0, 5.0, 4.0], repeat(9.0))
    product_times[torch.bfloat16] = chain([1.0, 10.0, in_bfloat16], repeat(20.0))
    assert bfloat16_speed() == 4.0 / in_bfloat16


def test_a_speed_is_measured_on_this_cpu_and_the_threads_stay():
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert bfloat16_speed() > 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(num_threads)
