"""The table that has a row for each model of the Penn Treebank text: its size and training, and its perplexities."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.report.by_task.languages import FOLDER as OTHER_LANGUAGES
from eval.report.by_task.training_runs import mean_hours, training_figures
from eval.report.results_files import Run, short_name, text_name
from eval.report.tasks import LANGUAGE_MODELLING
from onlstm_hf.hub.cards.published import citation, published_figures
from onlstm_hf.utils.training_stages import epochs_of, training_stages

NOTE = (
    "Models of the Penn Treebank text; `+` stands before the epochs of one that goes on from another model, whose own "
    "are not among them. Adapted: "
    "the lowest perplexity of the test text with one of the adaptations of the table below, whose settings were "
    "chosen on the validation text. Of models that name files, not runs, the validation text was cut into ten rows, "
    "and several seeds have mean ± standard deviation. Hours are those of one process on a CPU that was often shared; "
    "they were kept where `training/train_seeds.py` ran a recipe"
)
# The columns that the perplexities of the texts belong in.
PARTS = {"ptb/valid.txt": "validation", "ptb/test.txt": "test"}
HEADER = [
    "model",
    "seeds",
    "parameters",
    "epochs",
    "hours",
    "validation",
    "test",
    "test, adapted",
    "unknown words",
    "run",
]


def overview(runs: Sequence[Run], trained: Mapping[str, Sequence[dict]]) -> list[list[str]]:
    """The rows below `HEADER`: models that were scored, runs of recipes that were not, and published figures.

    Args:
        runs: of language modelling.
        trained: what `read_training_runs` gives.
    """
    of_recipes = {
        Path(folder).name: (folder, training_figures(seeds))
        for folder, seeds in trained.items()
        if Path(folder).parent.name != OTHER_LANGUAGES
    }
    scored: dict[str, list[tuple[int, dict]]] = {}
    for run in runs:
        for model in run.results.get("models", [run.results]):
            if any(text_name(text) in PARTS for text in model["scores"]):
                scored.setdefault(model["model"], []).append((run.number, model))
    rows = []
    for name, results in scored.items():
        _, figures = of_recipes.pop(short_name(name), (None, {}))
        rows.append(_scored_row(name, results, figures))
    for name, (folder, figures) in of_recipes.items():
        figures = {"model": name, **figures, "run": f"`{folder}`"}
        rows.append([figures.get(column, "") for column in HEADER])
    return rows + _published_rows()


def _scored_row(name: str, results: Sequence[tuple[int, dict]], trained: Mapping[str, str]) -> list[str]:
    first = results[0][1]
    plain, adapted, coverage = {}, [], ""
    for _, model in results:
        for text, score in model["scores"].items():
            column = PARTS.get(text_name(text))
            plain.setdefault(column, f"{score['perplexity']:.2f}")
            if column == "test" and "unknown_words" in score:
                coverage = f"{100 * score['unknown_words']:.1f} %"
        if adaptation := model["adaptation"]:
            scores = {PARTS.get(text_name(text)): score for text, score in adaptation["scores"].items()}
            if "test" in scores:
                adapted.append((scores["test"]["perplexity"], adaptation["method"]))
    epochs, hours = _training_of_release(name)
    figures = {
        "model": short_name(name),
        "seeds": str(first["seed"] or ""),
        "parameters": f"{first['num_parameters']:,}",
        "epochs": trained.get("epochs") or epochs,
        "hours": trained.get("hours", hours),
        "validation": plain.get("validation", ""),
        "test": plain.get("test", ""),
        "test, adapted": "{:.2f} ({})".format(*min(adapted)) if adapted else "",
        "unknown words": coverage,
        "run": " ".join(dict.fromkeys(f"[{number}]" for number, _ in results)),
    }
    return [figures[column] for column in HEADER]


def _training_of_release(name: str) -> tuple[str, str]:
    """Epochs and hours of a released model, whose results lie in its folder of this checkout, as far as known."""
    path = Path(name, "results.json")
    if not path.is_file():
        return "", ""
    stages = training_stages(json.loads(path.read_text(encoding="utf-8")))
    return epochs_of(stages), mean_hours([stages])


def _published_rows() -> list[list[str]]:
    """A row for each system, from those of its validation and its test perplexity."""
    systems: dict[str, dict] = {}
    for row in published_figures(LANGUAGE_MODELLING):
        part = {"valid": "validation", "test": "test"}[row["text"].split()[-1]]
        system = systems.setdefault(row["system"], {"model": f"{row['system']} (published)"})
        system |= {part: f"{row['perplexity']:.2f}", "run": citation(row)}
        for column in ("parameters", "epochs"):
            system[column] = str(row.get(column, system.get(column, "")))
        if adapted := row.get("adapted"):
            system["test, adapted"] = f"{adapted['perplexity']:.2f} ({adapted['method']})"
    return [[system.get(column, "") for column in HEADER] for system in systems.values()]
