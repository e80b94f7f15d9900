"""Stages of a model that was trained by several runs, each from the weights of the one before."""

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
        that it took, and the `validation` and `test` perplexity at its end. Unknown values are `None`, such as the
        epochs of a run that was given the number of its updates.

    Raises:
        LookupError, TypeError: if these are results of something else.
    """
    training = results.get("training", results)
    if "stages" in training:
        return training["stages"]
    recipe, perplexities = training["recipe"], results.get("perplexity", {})
    return [
        {
            "goes_on": recipe.get("init_from") is not None,
            "epochs": training.get("epochs", recipe["num_epochs"]) if recipe.get("max_steps") is None else None,
            "updates": training.get("updates"),
            "seconds": training.get("training_seconds"),
            **{part: perplexities.get(part, results.get(f"{part}_perplexity")) for part in ("validation", "test")},
        }
    ]


def stages_before(checkpoint: str | Path) -> list[dict]:
    """The stages of a checkpoint folder, released or `best/` of a run; none where its results do not lie with it."""
    folder = Path(checkpoint).resolve()
    path = (folder.parent if folder.name == "best" else folder) / "results.json"
    try:
        return training_stages(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no such file, or another one of that name
        return []


def epochs_of(stages: Sequence[Mapping[str, Any]]) -> str:
    """Epochs of all stages; `+` means that the first stage began with a model whose epochs are not recorded."""
    epochs = [stage["epochs"] for stage in stages]
    return "" if None in epochs else f"{'+ ' if stages[0]['goes_on'] else ''}{sum(epochs)}"
