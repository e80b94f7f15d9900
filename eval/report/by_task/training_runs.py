"""The table of what the runs of recipes found, over their seeds: training/train_seeds.py leaves a file for each."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from eval.report.results_files import text_name

NOTE = (
    "Runs of `training/train_seeds.py`: mean ± standard deviation over the seeds. Perplexity is that of a model's own "
    "tokens, of a text in ten rows; two models with different words, or with pieces of words, cannot be compared by "
    "it. The hours are those of one process, which often had to share its CPU with others"
)


def read_training_runs(folder: Path) -> dict[str, list[dict]]:
    """The results of all seeds below a folder, by the path of the folder that they lie in."""
    runs: dict[str, list[dict]] = {}
    for path in sorted(folder.rglob("seed_*.json")):
        runs.setdefault(path.parent.as_posix(), []).append(json.loads(path.read_text(encoding="utf-8")))
    return {folder: sorted(seeds, key=lambda seed: seed["recipe"]["seed"]) for folder, seeds in runs.items()}


def training_table(runs: Mapping[str, Sequence[dict]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: one for the seeds in each folder."""
    header = [
        "recipe",
        "seeds",
        "text",
        "parameters",
        "epochs",
        "hours",
        "validation",
        "test",
        "unknown words",
        "files",
    ]
    rows = []
    for folder, seeds in runs.items():
        recipe = seeds[0]["recipe"]
        rows.append(
            [
                Path(folder).name,
                ", ".join(str(seed["recipe"]["seed"]) for seed in seeds),
                _text(recipe),
                f"{seeds[0]['parameters']:,}",
                str(recipe["num_epochs"]),
                f"{mean(seed['training_seconds'] for seed in seeds) / 3600:.1f}",
                _spread(seeds, lambda seed: seed["validation_perplexity"], ".2f"),
                _spread(seeds, lambda seed: seed.get("test_perplexity"), ".2f"),
                _spread(seeds[:1], lambda seed: _per_cent(seed.get("validation_unknown_words")), ".1f"),
                f"`{folder}`",
            ]
        )
    return header, rows


def _text(recipe: Mapping) -> str:
    """The training text: the names of its files, or of the dataset with the part that was read."""
    if recipe.get("train_files"):
        return ", ".join(text_name(path) for path in recipe["train_files"])
    return f"{text_name(recipe['dataset'])}, {recipe['train_split']}"


def _spread(seeds: Sequence[dict], figure: Callable[[dict], float | None], digits: str) -> str:
    """Mean and standard deviation, and where not all seeds have the figure how many do."""
    values = [value for value in map(figure, seeds) if value is not None]
    if not values:
        return ""
    deviation = f" ± {stdev(values):{digits}}" if len(values) > 1 else ""
    number = f" ({len(values)} of {len(seeds)})" if len(values) < len(seeds) else ""
    return f"{mean(values):{digits}}{deviation}{number}"


def _per_cent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction
