"""Shared parts of the tests that choose a fast path."""

from collections.abc import Callable

import pytest

from onlstm_hf.fast.recurrence.operator import Recurrence


def record_paths(monkeypatch: pytest.MonkeyPatch, recurrence: Recurrence) -> list[tuple[str, str]]:
    """A list to which each run of a fast path from now on adds the path's name and the direction."""
    ran: list[tuple[str, str]] = []

    def recorded(name: str, direction: str, run: Callable) -> Callable:
        def run_and_record(*arguments):
            ran.append((name, direction))
            return run(*arguments)

        return run_and_record

    for name, path in recurrence.paths.items():
        forward, backward = recorded(name, "forward", path.forward), recorded(name, "backward", path.backward)
        monkeypatch.setitem(recurrence.paths, name, path._replace(forward=forward, backward=backward))
    return ran
