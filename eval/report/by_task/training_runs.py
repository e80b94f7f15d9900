"""The table of what the runs of recipes found, over their seeds: training/train_seeds.py leaves a file for each."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from eval.report.results_files import text_name
from onlstm_hf.utils.training_stages import epochs_of, hours_of, training_stages

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
        recipe, figures = seeds[0]["recipe"], training_figures(seeds)
        of_columns = figures | {"recipe": Path(folder).name, "text": _text(recipe), "files": f"`{folder}`"}
        of_columns["unknown words"] = _per_cent(seeds[0].get("validation_unknown_words"))
        rows.append([of_columns[column] for column in header])
    return header, rows


def training_figures(seeds: Sequence[dict]) -> dict[str, str]:
    """Cells of the runs of one recipe by the names of their columns; unknown words are those of the test text."""
    of_seeds = [training_stages(seed) for seed in seeds]
    return {
        "seeds": ", ".join(str(seed["recipe"]["seed"]) for seed in seeds),
        "parameters": f"{seeds[0]['parameters']:,}",
        "epochs": epochs_of(of_seeds[0]),
        "hours": mean_hours(of_seeds),
        "validation": _spread([seed["validation_perplexity"] for seed in seeds]),
        "test": _spread([seed.get("test_perplexity") for seed in seeds]),
        "unknown words": next(filter(None, (_per_cent(seed.get("test_unknown_words"), " %") for seed in seeds)), ""),
    }


def _text(recipe: Mapping) -> str:
    """The training text: the names of its files, or of the dataset with the part that was read."""
    if recipe.get("train_files"):
        return ", ".join(text_name(path) for path in recipe["train_files"])
    return f"{text_name(recipe['dataset'])}, {recipe['train_split']}"


def mean_hours(of_seeds: Sequence[Sequence[dict]]) -> str:
    """Hours of the stages of each seed, their mean; nothing where those of a stage were not kept."""
    hours = [hours_of(stages) for stages in of_seeds]
    return "" if None in hours else f"{mean(hours):.1f}"


def _spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation, and where not all seeds have the figure how many do."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    deviation = f" ± {stdev(known):.2f}" if len(known) > 1 else ""
    number = f" ({len(known)} of {len(values)})" if len(known) < len(values) else ""
    return f"{mean(known):.2f}{deviation}{number}"


def _per_cent(fraction: float | None, unit: str = "") -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}{unit}"
