"""The figures of `published.yaml`: what papers report, with their sources."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml


@cache
def published_figures(task: str) -> list[dict]:
    """The published figures of a task, in the order of the file; not to be changed.

    Args:
        task: as results files name it, such as "language modelling".

    Returns:
        For each system its fields in the file, with the citation of its source in place of the source's key.
    """
    content = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return [row | {"source": content["sources"][row["source"]]["text"]} for row in content[task]]


def citation(row: Mapping) -> str:
    """Returns the source of a figure and the place where it stands, and whether nobody has read it there."""
    if row.get("computed"):
        return f"{row['source']} (computed)"
    return f"{row['source']}, {row['place']}" + ("" if row["verified"] else " (not verified)")


def published_perplexity(system: str) -> dict:
    """The row of a system on the Penn Treebank text, by its name in the file."""
    return next(row for row in published_figures("language modelling") if row["system"] == system)


def published_f1(system: str) -> dict:
    """The row of a system in unsupervised parsing, by its name in the file."""
    return next(row for row in published_figures("unsupervised constituency parsing") if row["system"] == system)
