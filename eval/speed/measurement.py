"""Timing in rounds: all contestants run in every round, and only times of the same round are compared."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from onlstm_hf.utils.iteration import progress_bar


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


@dataclass(frozen=True)
class Row:
    """One figure of a case, with its value in each round."""

    case: str
    figure: str
    rounds: Sequence[float]

    def to_dict(self) -> dict:
        return asdict(self) | {"spread": str(Spread.of(self.rounds))}


@dataclass
class Outcome:
    """Result of a case.

    Attributes:
        title: heading.
        seconds: seconds of each contestant in every round.
        num_tokens: number of tokens that a contestant processes in that time.
        rows: rows of the summary.
        left_out: contestants that cannot run here, with the reason.
    """

    title: str
    seconds: dict[str, list[float]]
    num_tokens: int
    rows: list[Row]
    left_out: dict[str, str]


def ratios(numerators: Iterable[float], denominators: Iterable[float]) -> list[float]:
    """Returns the ratio of two figures in each round."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def leave_out_unavailable(contestants: Mapping[str, Callable[[], object]]) -> tuple[dict, dict[str, str]]:
    """Runs every contestant as a warm-up, and returns those that can run here, and the reasons of the others."""
    available, reasons = {}, {}
    for name, run in contestants.items():
        try:
            run()
            available[name] = run
        except (ValueError, RuntimeError) as error:
            reasons[name] = str(error)
    return available, reasons


def take_turns(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    device: torch.device,
    shortest_turn: float = 0.0,
) -> dict[str, list[float]]:
    """Returns the seconds of every contestant in every round. Each round starts with the next contestant.

    Other work on the machine slows all contestants of a round alike, so it hardly changes their ratio.

    Args:
        contestants: functions to run, by name.
        rounds: number of turns of each contestant.
        device: device to wait for.
        shortest_turn: a contestant is repeated in its turn for at least this many seconds, and the mean counts, so
            that warm caches and sleeping threads matter little.
    """

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in progress_bar(range(rounds), unit="round"):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            wait()
            start, passed, runs = time.perf_counter(), 0.0, 0
            while runs == 0 or passed < shortest_turn:
                contestants[name]()
                wait()
                passed, runs = time.perf_counter() - start, runs + 1
            seconds[name].append(passed / runs)
    return seconds
