"""Published figures: rows beside measured ones, and the tables of all systems in docs/published.md."""

from collections.abc import Callable, Mapping

from eval.report import tasks
from eval.report.tables import Table
from onlstm_hf.hub.cards.published import (
    central_figures,
    citation,
    f1_figures,
    published_figures,
    published_sources,
    source_location,
    verification_status,
)

SHORT, SHORT_MAX = "F1, at most 10 words", "max, at most 10 words"
SPREAD = ("mean", "standard_deviation")
STANDING, VERIFIED = "where it stands", "verified"


def _perplexities(row: Mapping) -> dict[str, str]:
    deviations = row.get("standard_deviation", {})
    cells = {column: str(row[column]) for column in ("parameters", "epochs") if column in row}
    for part, perplexity in row["perplexity"].items():
        cells["validation" if part == "valid" else part] = _figure(perplexity, deviations.get(part), 2)
    if row.get("counted"):
        cells["parameters"] += " (own count)"
    if adaptation := row.get("adapted"):
        cells["test, adapted"] = f"{adaptation['perplexity']:.2f} ({adaptation['method']})"
    return cells


def _parsing(row: Mapping) -> dict[str, str]:
    cells = {label: f"{recall:.1f}" for label, recall in row.get("recall", {}).items()}
    columns = (("F1", "max"), (SHORT, SHORT_MAX))
    for (f1, maximum), figure in zip(columns, f1_figures(row), strict=True):
        if "mean" in figure:
            cells[f1] = _figure(figure["mean"], figure.get("standard_deviation"), 1)
        if "max" in figure:
            cells[maximum] = f"{figure['max']:.1f}"
    return cells


def _figure(value: float, deviation: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


# Functions that give the cells of a published row by column, by task.
CELLS: Mapping[str, Callable[[Mapping], dict[str, str]]] = {
    tasks.LANGUAGE_MODELLING: _perplexities,
    tasks.ABLATIONS: lambda row: {"test": f"{row['perplexity']:.2f}"},
    tasks.CHARACTERS: lambda row: {"bits per character": f"{row['bits_per_character']}"},
    tasks.TEXT8: lambda row: {"perplexity": f"{row['perplexity']}"},
    tasks.PARSING: _parsing,
    tasks.LOGICAL_INFERENCE: lambda row: {str(number): str(accuracy) for number, accuracy in row["accuracy"].items()},
    tasks.LISTOPS: lambda row: {
        "accuracy": " ± ".join(str(row["accuracy"][name]) for name in SPREAD if name in row["accuracy"])
    },
    tasks.NARRATIVE_CLOZE: lambda row: {"arguments": row["arguments"], "recall at 25": f"{row['recall']:.1f}"},
}
# Tables of docs/published.md: task and columns of figures.
TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "language-models": (tasks.LANGUAGE_MODELLING, ("validation", "test", "test, adapted", "parameters", "epochs")),
    "ablations": (tasks.ABLATIONS, ("test",)),
    "characters": (tasks.CHARACTERS, ("bits per character",)),
    "text8": (tasks.TEXT8, ("perplexity",)),
    "parsing": (tasks.PARSING, ("F1", "max", SHORT, SHORT_MAX)),
    "label-recall": (tasks.PARSING, ("NP", "PP", "ADJP", "INTJ")),
    "logical-inference": (tasks.LOGICAL_INFERENCE, ("7", "8", "9", "10", "11", "12")),
    "listops": (tasks.LISTOPS, ("accuracy",)),
    "narrative-cloze": (tasks.NARRATIVE_CLOZE, ("arguments", "recall at 25")),
}


def central_rows(task: str, first: str = "model") -> list[dict[str, str]]:
    """Returns the central systems of a task as cells by column; `first` is the column of the system's name."""
    return [
        {first: f"{row['system']} (published)", "file": citation(row)} | CELLS[task](row)
        for row in central_figures(task)
    ]


def published_tables() -> dict[str, Table]:
    """Returns the tables of all published systems by name (`published-parsing`), and of their sources."""
    tables = {name: _systems(*table) for name, table in TABLES.items()}
    tables |= {"syntax": _test_cases(), "sources": (["source", "title"], list(map(list, published_sources().items())))}
    return {f"published-{name}": table for name, table in tables.items()}


def _systems(task: str, columns: tuple[str, ...]) -> Table:
    """Returns a row for each system that has at least one of these figures."""
    rows = []
    for row in published_figures(task):
        cells = CELLS[task](row)
        if cells.keys() & set(columns):
            figures = [cells.get(column, "") for column in columns]
            rows.append([row["system"], *figures, source_location(row), verification_status(row)])
    return ["system", *columns, STANDING, VERIFIED], rows


def _test_cases() -> Table:
    """Returns the table of targeted syntactic evaluation, with a column per system and a row per test case."""
    systems = published_figures(tasks.SYNTAX)
    cases = list(dict.fromkeys(case for row in systems for case in row["accuracy"]))
    rows = [
        [case, *(f"{row['accuracy'][case]:.2f}" if case in row["accuracy"] else "" for row in systems)]
        for case in cases
    ]
    rows += [[STANDING, *map(source_location, systems)], [VERIFIED, *map(verification_status, systems)]]
    return ["test case", *(row["system"] for row in systems)], rows
