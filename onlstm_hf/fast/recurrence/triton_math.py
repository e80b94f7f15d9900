"""Functions for the Triton kernels of all recurrences. Importing this module fails where Triton is not installed."""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    exponential = tl.exp(-2 * tl.abs(x))
    away_from_zero = (1 - exponential) / (1 + exponential)
    square = x * x
    # The quotient loses digits near zero, where five terms of the Taylor series have full float32 precision.
    series = 1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    return tl.where(tl.abs(x) < 0.25, x * series, tl.where(x < 0, -away_from_zero, away_from_zero))
