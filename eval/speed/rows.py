"""What a case of the speed benchmark found, and the rows that its tables have of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby

from eval.report.tables import format_table
from eval.speed.measurement import Spread

HEADER = ("case", "figure", "median (quartiles)", "target", "", "allocator", "optimiser")
SETTINGS_NOTE = (
    "A target is met where the worse quartile meets it, too. `allocator` says what the C library does with freed "
    "memory: it is `kept` for what needs memory next, as in the training scripts; or large blocks go back to the "
    "system (`default`); or all of it is `returned` at once, so that only memory in use counts. `optimiser` says "
    "whether an update is part of what is measured, and whether by PyTorch's fused optimiser or by the plain one. Of "
    "two entries the first is of the measured side, the second of what it is compared with; one entry is of both"
)


@dataclass(frozen=True)
class Row:
    """One line of the summary.

    Attributes:
        case: what was measured.
        figure: which ratio (or time) of it.
        rounds: the figure in each round.
        at_least, at_most: what it should be, where there is a target.
        allocator, optimizer: how both sides were run, see `SETTINGS_NOTE`.
    """

    case: str
    figure: str
    rounds: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None
    allocator: str = ""
    optimizer: str = "none"

    @property
    def measured(self) -> Spread:
        """The spread over the rounds."""
        return Spread.of(self.rounds)

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return "" if self.at_most is None else f"at most {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        """Whether the quartile that is further from the target meets it; `None` where there is no target."""
        if self.at_least is not None:
            return self.measured.low >= self.at_least
        return None if self.at_most is None else self.measured.high <= self.at_most

    def to_dict(self) -> dict:
        """What results files hold: the fields, and what follows from them."""
        return asdict(self) | {"measured": self.measured, "target": self.target, "met": self.met}

    @classmethod
    def from_dict(cls, content: dict) -> "Row":
        """A row of a results file."""
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    def cells(self) -> list[str]:
        """The columns of `HEADER`."""
        verdict = {None: "", True: "met", False: "missed"}[self.met]
        settings = [self.allocator, self.optimizer]
        return [self.case, self.figure, str(self.measured), self.target, verdict, *settings]


@dataclass
class Outcome:
    """What a case found.

    Attributes:
        title: heading.
        seconds: of every contestant in every round.
        num_tokens: that a contestant works on in that time.
        rows: of the summary.
        left_out: contestants that cannot run here, and why.
        details: further figures, for the JSON file.
    """

    title: str
    seconds: dict[str, list[float]]
    num_tokens: int
    rows: list[Row]
    left_out: dict[str, str]
    details: dict


def with_rows_over_all_runs(rows: Sequence[tuple[Row, str, str]]) -> list[tuple[Row, str]]:
    """The rows with the names of their runs, and a row over all rounds for each figure that several runs measured.

    Args:
        rows: each with the name of its run and the CPU that it was measured on; on another CPU it is another figure.
    """
    found: dict[tuple[str, str, str], list[tuple[Row, str]]] = {}
    for row, run, cpu in rows:
        found.setdefault((row.case, row.figure, cpu), []).append((row, run))
    repeated = {key: zip(*same, strict=True) for key, same in found.items() if len(same) > 1}
    overall = [(_over_all(same), " ".join(runs)) for same, runs in repeated.values()]
    return [*((row, run) for row, run, _ in rows), *overall]


def _over_all(rows: Sequence[Row]) -> Row:
    rounds = [value for row in rows for value in row.rounds]
    return replace(
        rows[0],
        figure=f"{rows[0].figure}: all {len(rounds)} rounds of {len(rows)} runs",
        rounds=rounds,
        allocator="; ".join(dict.fromkeys(row.allocator for row in rows)),
        optimizer="; ".join(dict.fromkeys(row.optimizer for row in rows)),
    )


def summary(rows: Sequence[Row]) -> str:
    """All rows under the names of their cases."""
    lines: list[list[str]] = []
    for case, case_rows in groupby(rows, key=lambda row: row.case):
        indented = [[f"  {figure}", *others] for _, figure, *others in (row.cells() for row in case_rows)]
        lines += [[], [case, *[""] * (len(HEADER) - 2)], *indented]
    return format_table(["", *HEADER[2:]], lines)
