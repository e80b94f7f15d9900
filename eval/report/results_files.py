"""Results files: reading them, and what they say of a checkpoint."""

import json
import os
import re
from collections.abc import Collection
from pathlib import Path

from transformers import PreTrainedModel

TREES_OF_SEED = re.compile(r"seed_\d+\.trees\.jsonl\.xz")


def check_writable(*paths: str | os.PathLike | None) -> None:
    """Raises a `FileNotFoundError` where a file could not be written after long work."""
    for path in paths:
        if path is not None and not Path(path).resolve().parent.is_dir():
            raise FileNotFoundError(f"cannot write {path}: its folder does not exist")


def read_results(path: str | os.PathLike, tasks: Collection[str]) -> dict:
    """Reads a results file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not of one of the tasks.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(results, dict) or results.get("task") not in tasks:
        raise ValueError(f"{path} holds no results of {' or '.join(tasks)}")
    return results


def describe_checkpoint(name: str, model: PreTrainedModel) -> dict:
    """Returns what a results file says of a checkpoint: its name, its size, and the seed that it was trained with.

    Args:
        name: checkpoint folder, or name on the Hub.
        model: the model in it.

    Returns:
        `model`, `num_parameters` and `seed`: that of the `results.json` in the folder, where the checkpoint was
        released, or beside the folder, where it was trained; `None` where neither tells.
    """
    return {"model": name, "num_parameters": model.num_parameters(), "seed": _training_seed(Path(name))}


def _training_seed(folder: Path) -> int | None:
    for path, keys in ((folder, ("training", "recipe", "seed")), (folder.parent, ("recipe", "seed"))):
        try:
            value = json.loads((path / "results.json").read_text(encoding="utf-8"))
            for key in keys:
                value = value[key]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return value
    return None


def short_name(path: str) -> str:
    """The last part of a path or a name on the Hub, and that of the folder for what is a part of a run."""
    place = Path(path)
    is_part = place.name in ("best", "last") or TREES_OF_SEED.fullmatch(place.name) is not None
    return place.parent.name if is_part and place.parent.name else place.name
