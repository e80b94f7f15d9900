"""What a case found, as a table on the screen."""

from dataclasses import asdict

from eval.report.tables import format_table
from eval.speed.cases import LSTM, REFERENCE, Outcome
from eval.speed.measurement import Spread, ratios


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
