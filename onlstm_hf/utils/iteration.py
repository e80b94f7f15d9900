"""Going through many items: with a progress bar, and in windows of bounded size."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
PROGRESS_AFTER_SECONDS = 2.0


def progress_bar(
    iterable: Iterable | None = None,
    *,
    unit: str,
    total: int | None = None,
    description: str | None = None,
    shown: bool | None = None,
):
    """A progress bar of tqdm on standard error, which goes away when the work is done.

    Args:
        iterable: what to go through; without it the caller counts with `bar.update(n)`.
        unit: of what is counted, such as `"sentence"`.
        total: how many there are, where the iterable does not know.
        description: words before the bar.
        shown: `True`, or `False` for never. By default the bar is shown on a terminal and in a notebook, once the work
            has taken more than `PROGRESS_AFTER_SECONDS`.

    Returns:
        The bar of `transformers.utils.logging`, which `disable_progress_bar()` there switches off: an iterable and a
        context manager.
    """
    from transformers.utils.logging import tqdm  # loaded here, as commands that show no bar start faster

    return tqdm(
        iterable,
        unit=unit,
        total=total,
        desc=description,
        disable=None if shown is None else not shown,
        delay=0 if shown else PROGRESS_AFTER_SECONDS,
        leave=False,
    )


def bounded_windows(
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
