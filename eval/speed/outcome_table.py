"""The machine, and what each case found, as lines and tables on the screen."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from eval.report.tables import format_table
from eval.speed.cases import LSTM, REFERENCE, Outcome, Row
from eval.speed.measurement import Spread, ratios
from onlstm_hf.utils.results_file import describe_machine


def machine_line(device: torch.device) -> str:
    """The machine and the versions in one line."""
    return ", ".join(f"{name}: {value}" for name, value in describe_machine(device).items())


def summary_table(rows: Sequence[Row], as_table: Callable[[list[str], list[list[str]]], str]) -> str:
    """A line for each figure, in the format that `as_table` writes."""
    cells = [[row.case, row.figure, str(Spread.of(row.rounds))] for row in rows]
    return as_table(["case", "figure", "median (quartiles)"], cells)


def print_outcome(outcome: Outcome) -> dict:
    """Prints what a case found, and returns it for the JSON file."""
    print(f"\n{outcome.title}\n{contestants_table(outcome)}", flush=True)
    for name, reason in outcome.left_out.items():
        print(f"{name} was left out: {reason}")
    return asdict(outcome)


def contestants_table(outcome: Outcome) -> str:
    """The speed of every contestant, also relative to the reference and to LSTM layers of its precision or sizes."""
    seconds, rows = outcome.seconds, []
    reference = next((times for name, times in seconds.items() if name.startswith(REFERENCE)), None)
    for name, times in seconds.items():
        speed = Spread.of(outcome.num_tokens / time for time in times)
        lstm = seconds.get(f"{LSTM} {name.partition(' ')[2]}")
        faster = "" if reference is None else str(Spread.of(ratios(reference, times)))
        slower = "" if lstm is None else str(Spread.of(ratios(times, lstm)))
        rows.append([name, str(speed), faster, slower])
    return format_table(["path", "tokens/s", f"speed / {REFERENCE}", f"time / {LSTM}"], rows)
