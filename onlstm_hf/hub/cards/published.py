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
    """Returns the source of a figure; in brackets the place where it was read, or how it got here otherwise."""
    known = row["place"] if row.get("verified") else None if row["seen"] == "paper" else row["seen"]
    return row["source"] if known is None else f"{row['source']} ({known})"


def published_perplexity(system: str, part: str) -> dict:
    """The row of a system on the Penn Treebank text.

    Args:
        system: its name in the file.
        part: "valid" or "test".
    """
    rows = published_figures("language modelling")
    return next(row for row in rows if (row["system"], row["text"]) == (system, f"Penn Treebank {part}"))


def published_f1(system: str) -> dict:
    """The row of a system in unsupervised parsing, by its name in the file."""
    return next(row for row in published_figures("unsupervised constituency parsing") if row["system"] == system)
