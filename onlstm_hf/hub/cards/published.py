"""Published figures from `published.yaml`, with their sources."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import yaml


def published_figures(task: str) -> list[dict]:
    """Returns the published figures of a task, named as in results files ("language modelling").

    These are the fields of each system in the file, with a citation in place of the key of the source.
    """
    content = _content()
    return [row | {"source": content["sources"][row["source"]]["text"]} for row in content[task]]


def central_figures(task: str) -> list[dict]:
    """Returns the published figures of a task for comparison in tables of measured figures."""
    return [row for row in published_figures(task) if row.get("central")]


def published_sources() -> dict[str, str]:
    """Returns the title of each source by its citation."""
    return {source["text"]: source["title"] for source in _content()["sources"].values()}


@cache
def _content() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def source_location(row: Mapping) -> str:
    """Returns the source of a figure and, unless it was computed, its place in the source."""
    return row["source"] + (f", {row['place']}" if "place" in row else "")


def verification_status(row: Mapping) -> str:
    """Returns whether a figure was checked in its source (`yes` or `no`), or `computed` for this project."""
    return "computed" if row.get("computed") else "yes" if row["verified"] else "no"


def citation(row: Mapping) -> str:
    """Returns the location of a figure, with a remark if it is not verified or was computed."""
    remarks = {"yes": "", "no": " (not verified)", "computed": " (computed)"}
    return source_location(row) + remarks[verification_status(row)]


def published_figure(task: str, system: str) -> dict:
    """Returns the published figures of one system, by its name in the file."""
    return next(row for row in published_figures(task) if row["system"] == system)


def f1_figures(row: Mapping) -> tuple[dict, dict]:
    """Returns `mean`, `standard_deviation`, `min` and `max` of F1, as far as they or the runs are published.

    The first figures are for all sentences, the second ones for those of at most ten words.
    """
    parts = (row.get("wsj", {}), row.get("wsj10", row.get("sample10", {})))
    return tuple(_spread(part["runs"]) | part if "runs" in part else dict(part) for part in parts)


def _spread(runs: Sequence[float]) -> dict[str, float]:
    return {"mean": mean(runs), "standard_deviation": stdev(runs), "min": min(runs), "max": max(runs)}
