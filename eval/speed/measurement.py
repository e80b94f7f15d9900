"""Timing in rounds: all contestants run in every round, and only times of the same round are compared."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from onlstm_hf.utils.iteration import progress_bar


def spread(rounds: Iterable[float]) -> str:
    """Formats median and quartiles over the rounds."""
    quartiles = np.quantile(list(rounds), [0.5, 0.25, 0.75])
    median, low, high = (f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}" for figure in quartiles)
    return median if median == low == high else f"{median} ({low} to {high})"


def row(case: str, figure: str, rounds: Sequence[float]) -> dict:
    """Returns one figure of a case for the results file, with its value in each round."""
    return {"case": case, "figure": figure, "rounds": rounds, "spread": spread(rounds)}


@dataclass
class Outcome:
    """Result of a case."""

    title: str
    seconds: dict[str, list[float]]  # of each contestant in every round
    num_tokens: int  # that a contestant processes in that time
    rows: list[dict]  # of the summary
    left_out: dict[str, str]  # contestants that cannot run here, with the reason


def ratios(numerators: Iterable[float], denominators: Iterable[float]) -> list[float]:
    """Returns the ratio of two figures in each round."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def take_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, device: torch.device, shortest_turn: float = 0.0
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Returns the seconds of every contestant in every round, and the reasons of contestants that cannot run here.

    All contestants first run once, to warm up. Each round starts with the next contestant. Other work on the machine
    slows all contestants of a round alike, so it hardly changes their ratio. A contestant is repeated in its turn for
    at least `shortest_turn` seconds, and the mean counts, so that warm caches and sleeping threads matter little.
    """

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    seconds: dict[str, list[float]] = {}
    left_out: dict[str, str] = {}
    for name, run in contestants.items():
        try:
            run()
            seconds[name] = []
        except (ValueError, RuntimeError) as error:
            left_out[name] = str(error)
    names = list(seconds)
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
    return seconds, left_out
