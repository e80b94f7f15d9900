"""Training stages of a model: runs that each start from the weights of the previous run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def training_stages(results: Mapping[str, Any]) -> list[dict]:
    """Returns the stages in the `results.json` of a run or a released language model, in chronological order.

    Each has `goes_on` (whether it started from the weights of another run), `epochs`, `updates`, training time in
    `seconds`, and final `validation` and `test` perplexity. Unknown values are `None`, such as the epochs of a run of
    a fixed number of updates.
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


def previous_stages(checkpoint: str | Path) -> list[dict]:
    """Returns the stages of a released checkpoint or of `best/` of a run; an empty list without its results."""
    folder = Path(checkpoint).resolve()
    path = (folder.parent if folder.name == "best" else folder) / "results.json"
    try:
        return training_stages(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no such file, or an unrelated one
        return []


def epochs_of(stages: Sequence[Mapping[str, Any]]) -> str:
    """Returns the total epochs; `+` means that the first stage started from a model with unknown epochs."""
    epochs = [stage["epochs"] for stage in stages]
    return "" if None in epochs else f"{'+ ' if stages[0]['goes_on'] else ''}{sum(epochs)}"
