"""Windows of bounded size over a stream of items."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def windows(
    items: Iterable[Item], max_items: int, size_of: Callable[[Item], int], max_size: int
) -> Iterator[list[Item]]:
    """Groups neighbouring items; a window ends at `max_items`, or with the item that brings its size to `max_size`."""
    window, size = [], 0
    for item in items:
        window.append(item)
        size += size_of(item)
        if len(window) == max_items or size >= max_size:
            yield window
            window, size = [], 0
    if window:
        yield window
