"""The table of parsing by language: a column for each treebank, rows for each kind of model by both rules."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from eval.report.results_files import Run, short_name

FOLDER = "languages"
NOTE = (
    "Sentence F1 in per cent, of words only, on the treebanks of `data/languages`, no sentence of which was read in "
    "training: mean ± standard deviation over seeds, and in brackets their number. Models are named without the "
    "language at the end of their recipe's name"
)


def is_by_language(run: Run) -> bool:
    """Whether a run scored a treebank in a folder of its language, such as `languages/nl/test.mrg`."""
    return Path(run.results["treebank"]).parent.parent.name == FOLDER


def language_table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Header and rows, from runs of which `is_by_language` is true.

    First come the models, by the papers' rule, without branching bias, and the share of words that they do not know;
    then the baselines, and the runs that the column is from.
    """
    measured: dict[str, dict[str, str]] = {}
    baselines: dict[str, dict[str, str]] = {}
    numbers: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: run.results["protocol"]["branching_bias"] != "right"):
        language = Path(run.results["treebank"]).parent.name
        numbers[language] = f"{numbers.get(language, '')} [{run.number}]".strip()
        rule = "" if run.results["protocol"]["branching_bias"] == "right" else ", no branching bias"
        for name, summary in run.results["summary"]["all"].items():
            models = [model for model in run.results["models"] if name in model["scores"]["all"]]
            if not models:
                baselines.setdefault(name, {})[language] = f"{100 * summary['sentence_f1']['mean']:.1f}"
                continue
            system = short_name(models[0]["model"]).replace(f"_{language}", "")
            measured.setdefault(f"{system}, {name}{rule}", {})[language] = _spread(summary["sentence_f1"], len(models))
            unknown = mean(model["unknown_words"] for model in models)
            measured.setdefault(f"{system}, words unknown to it", {})[language] = f"{100 * unknown:.1f}"
    languages = sorted(numbers)
    rows = [
        [name, *(figures.get(language, "-") for language in languages)]
        for part in (dict(sorted(measured.items())), baselines, {"run": numbers})
        for name, figures in part.items()
    ]
    return ["trees", *languages], rows


def _spread(figure: dict, num_seeds: int) -> str:
    deviation = figure["standard_deviation"]
    spread = "" if deviation is None else f" ± {100 * deviation:.1f}"
    return f"{100 * figure['mean']:.1f}{spread} ({num_seeds})"
