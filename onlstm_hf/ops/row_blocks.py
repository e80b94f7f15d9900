"""Blocks of the rows of a matrix, so that what is made of them on the way stays in a CPU's cache."""

import math


def row_blocks(num_rows: int, row_size: int, entries_per_block: int) -> list[slice]:
    """Blocks of rows as large as each other, of no more entries than that (but of one row at least)."""
    num_blocks = math.ceil(num_rows / max(1, entries_per_block // row_size))
    size = math.ceil(num_rows / max(1, num_blocks))
    return [slice(start, start + size) for start in range(0, num_rows, max(1, size))]
