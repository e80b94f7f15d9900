"""Reading of results files, and short names of the models in them."""

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

Results = Mapping[str, dict]  # the contents of results files by name

TREES_OF_SEED = re.compile(r"seed_\d+\.trees\.jsonl\.xz")


def read_results(path: str | os.PathLike, tasks: Collection[str]) -> dict:
    """Reads a results file; a `ValueError` says that it is not of one of the tasks."""
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(results, dict) or results.get("task") not in tasks:
        raise ValueError(f"{path} holds no results of {' or '.join(tasks)}")
    return results


def short_name(path: str) -> str:
    """Returns the last part of a path or Hub name; for a checkpoint or tree file of a run, the name of the run."""
    place = Path(path)
    is_part = place.name in ("best", "last") or TREES_OF_SEED.fullmatch(place.name) is not None
    return place.parent.name if is_part and place.parent.name else place.name
