"""Iteration with a progress bar, and in windows of bounded size."""

from collections.abc import Callable, Iterable, Iterator

PROGRESS_AFTER_SECONDS = 2.0


def progress_bar(
    iterable: Iterable | None = None,
    *,
    unit: str,
    total: int | None = None,
    description: str | None = None,
    shown: bool | None = None,
):
    """Returns a tqdm progress bar on standard error that disappears at the end; Transformers' setting can hide it.

    Without an iterable the caller counts with `bar.update(n)`. `unit` names an item, such as `"sentence"`. By default
    the bar is shown on terminals and in notebooks after `PROGRESS_AFTER_SECONDS`.
    """
    from transformers.utils.logging import tqdm  # imported here so that commands without a bar start faster

    return tqdm(
        iterable,
        unit=unit,
        total=total,
        desc=description,
        disable=None if shown is None else not shown,
        delay=0 if shown else PROGRESS_AFTER_SECONDS,
        leave=False,
    )


def bounded_windows(items: Iterable, max_items: int, size_of: Callable[..., int], max_size: int) -> Iterator[list]:
    """Groups neighbouring items; a window ends when it has `max_items` items or its size reaches `max_size`."""
    window, size = [], 0
    for item in items:
        window.append(item)
        size += size_of(item)
        if len(window) == max_items or size >= max_size:
            yield window
            window, size = [], 0
    if window:
        yield window
