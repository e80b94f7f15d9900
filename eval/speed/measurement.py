"""How speed is measured: contestants take turns, and only times of the same round are compared."""

import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


class Spread(NamedTuple):
    """Median, lower and upper quartile of a figure over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        values = list(values)
        if len(values) == 1:
            return cls(*values * 3)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self) -> str:
        median, low, high = (f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}" for figure in self)
        return median if median == low == high else f"{median} ({low} to {high})"


def ratios(numerators: Iterable[float], denominators: Iterable[float]) -> list[float]:
    """The ratio of two figures in each of the rounds in which both were measured."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def leave_out_unavailable(contestants: Mapping[str, Callable[[], object]]) -> tuple[dict, dict[str, str]]:
    """Runs every contestant once, which warms it up.

    Returns:
        The contestants that can run here, and of the others why they cannot.
    """
    available, reasons = {}, {}
    for name, run in contestants.items():
        try:
            run()
            available[name] = run
        except ValueError as error:
            reasons[name] = str(error)
    return available, reasons


def take_turns(
    contestants: Mapping[Name, Callable[[], object]],
    rounds: int,
    device: torch.device,
    shortest_turn: float = 0.0,
    clock: Callable[[], float] | None = None,
) -> dict[Name, list[float]]:
    """Seconds of every contestant in every round. Each round starts with another one of them.

    Whatever else keeps the machine busy during a round slows all contestants of that round, and a ratio within the
    round is hardly changed by it.

    Args:
        contestants: what to run, by name.
        rounds: turns of each.
        device: where.
        shortest_turn: seconds that a contestant runs again and again in its turn, of which it gets the mean, so that
            what the one before it left behind (caches, sleeping threads) does not count.
        clock: tells the seconds: `time.perf_counter` by default, or `time.process_time` for those of the CPU.
    """
    clock, names = clock or time.perf_counter, list(contestants)
    seconds: dict[Name, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            synchronize(device)
            start, passed, runs = clock(), 0.0, 0
            while runs == 0 or passed < shortest_turn:
                contestants[name]()
                synchronize(device)
                passed, runs = clock() - start, runs + 1
            seconds[name].append(passed / runs)
    return seconds


@contextmanager
def in_own_process(make: Callable[..., Callable[[], object]], *arguments) -> Iterator[Callable[[], None]]:
    """A contestant in a process of its own, whose memory is managed as it would be alone.

    Args:
        make: called in the new process; what it returns runs there whenever it is the contestant's turn. A function of
            a module, as the new process has to find it.
        arguments: of `make`.

    Raises:
        RuntimeError: if the process fails; it has printed why.
    """
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, torch.get_num_threads(), make, arguments), daemon=True)
    process.start()
    theirs.close()

    def wait() -> None:
        try:
            ours.recv()
        except (EOFError, OSError):
            raise RuntimeError("a contestant's process failed") from None

    def take_turn() -> None:
        ours.send(None)
        wait()

    try:
        wait()  # until the contestant is made: nothing may run beside those that are measured
        yield take_turn
    finally:
        ours.close()
        process.join()


def _serve(
    requests: Connection, num_threads: int, make: Callable[..., Callable[[], object]], arguments: tuple
) -> None:
    torch.set_num_threads(num_threads)
    run = make(*arguments)
    requests.send(None)
    while True:
        try:
            requests.recv()
        except EOFError:
            return
        run()
        requests.send(None)


def synchronize(device: torch.device) -> None:
    """Waits for all work that a GPU was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
