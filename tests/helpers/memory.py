"""Bounds on the memory of Python."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_below(num_bytes: int) -> Iterator[None]:
    """Fails if the peak memory of Python in the block is `num_bytes` or more."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()
