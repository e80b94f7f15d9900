"""The figures of `published.yaml`: what papers report, with their sources."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import yaml


@cache
def published_figures(task: str) -> list[dict]:
    """The published figures of a task, in the order of the file; not to be changed.

    Args:
        task: as results files name it, such as "language modelling".

    Returns:
        For each system its fields in the file, with the citation of its source in place of the source's key.
    """
    content = _content()
    return [row | {"source": content["sources"][row["source"]]["text"]} for row in content[task]]


def central_figures(task: str) -> list[dict]:
    """The published figures of a task that tables of measured ones have beside them."""
    return [row for row in published_figures(task) if row.get("central")]


def published_sources() -> dict[str, str]:
    """The title of each source by its citation."""
    return {source["text"]: source["title"] for source in _content()["sources"].values()}


@cache
def _content() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def source_location(row: Mapping) -> str:
    """Returns the source of a figure and, unless it was computed, the place where it stands."""
    return row["source"] + (f", {row['place']}" if "place" in row else "")


def verification_status(row: Mapping) -> str:
    """Returns whether a figure was read where it stands, `yes` or `no`, or was `computed` for this project."""
    return "computed" if row.get("computed") else "yes" if row["verified"] else "no"


def citation(row: Mapping) -> str:
    """Returns the source of a figure and the place where it stands, and whether nobody has read it there."""
    return (
        source_location(row)
        + {"yes": "", "no": " (not verified)", "computed": " (computed)"}[verification_status(row)]
    )


def published_perplexity(system: str) -> dict:
    """The row of a system on the Penn Treebank text, by its name in the file."""
    return next(row for row in published_figures("language modelling") if row["system"] == system)


def published_f1(system: str) -> dict:
    """The row of a system in unsupervised parsing, by its name in the file."""
    return next(row for row in published_figures("unsupervised constituency parsing") if row["system"] == system)


def f1_figures(row: Mapping) -> tuple[dict, dict]:
    """F1 of all sentences and of those of at most ten words, as published or from the published runs.

    Returns:
        Of `mean`, `standard_deviation`, `min` and `max` those that are known.
    """
    parts = (row.get("wsj", {}), row.get("wsj10", row.get("sample10", {})))
    return tuple(_spread(part["runs"]) | part if "runs" in part else dict(part) for part in parts)


def _spread(runs: Sequence[float]) -> dict[str, float]:
    return {"mean": mean(runs), "standard_deviation": stdev(runs), "min": min(runs), "max": max(runs)}
