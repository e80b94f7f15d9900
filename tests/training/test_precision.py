"""Measured speed of bfloat16 on a CPU."""

import torch

from training.loop.precision import bfloat16_speed


def test_the_speed_is_measured_and_the_number_of_threads_is_restored():
    torch.set_num_threads(2)
    assert bfloat16_speed() > 0
    assert torch.get_num_threads() == 2
