"""The stages by which a model came about that was trained on from an earlier one: runs one after the other."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def training_stages(results: Mapping[str, Any]) -> list[dict]:
    """The stages of a run or of a released model, the first one first.

    Args:
        results: its `results.json`, as `training/train_lm.py` or `training/release.py` writes it.

    Returns:
        for each stage `goes_on`, whether it began with the weights of another run; `epochs`, `updates`, the `seconds`
        that it took, and the `validation` and `test` perplexity at its end. What is not known is `None`.
    """
    training = results.get("training", results)
    if "stages" in training:
        return training["stages"]
    perplexities = results.get("perplexity", {})
    return [
        {
            "goes_on": training["recipe"].get("init_from") is not None,
            "epochs": training["recipe"]["num_epochs"],
            "updates": training.get("updates"),
            "seconds": training.get("training_seconds"),
            **{part: perplexities.get(part, results.get(f"{part}_perplexity")) for part in ("validation", "test")},
        }
    ]


def stages_before(checkpoint: str | Path) -> list[dict]:
    """The stages of a checkpoint folder, released or `best/` of a run; none where its results do not lie with it."""
    folder = Path(checkpoint)
    for path in (folder / "results.json", folder.parent / "results.json"):
        if path.is_file():
            return training_stages(json.loads(path.read_text(encoding="utf-8")))
    return []


def epochs_and_hours(stages: Sequence[Mapping[str, Any]]) -> tuple[str, float | None]:
    """Epochs of all stages, with `+` before them where the first one goes on from another model, and their hours."""
    epochs = f"{'+ ' if stages[0]['goes_on'] else ''}{sum(stage['epochs'] for stage in stages)}"
    seconds = [stage["seconds"] for stage in stages]
    return epochs, None if None in seconds else sum(seconds) / 3600
