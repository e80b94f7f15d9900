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


@triton.jit
def split_gates(gates, gate):
    """Returns four gates `[...]` from one tensor `[4, ...]`; `gate` is the index of its first dimension."""
    first = tl.sum(tl.where(gate == 0, gates, 0), axis=0)
    second = tl.sum(tl.where(gate == 1, gates, 0), axis=0)
    third = tl.sum(tl.where(gate == 2, gates, 0), axis=0)
    fourth = tl.sum(tl.where(gate == 3, gates, 0), axis=0)
    return first, second, third, fourth


@triton.jit
def stack_gates(first, second, third, fourth, gate):
    """Returns one tensor `[4, ...]` of four gates `[...]`."""
    lower = tl.where(gate == 0, tl.expand_dims(first, 0), tl.expand_dims(second, 0))
    upper = tl.where(gate == 2, tl.expand_dims(third, 0), tl.expand_dims(fourth, 0))
    return tl.where(gate < 2, lower, upper)
