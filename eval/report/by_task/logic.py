"""Table and figure of logical inference: accuracy by number of operators, beside published figures."""

from collections.abc import Collection
from pathlib import Path

from eval.report.results_files import Results
from eval.report.tables import Table, per_cent
from eval.report.tasks import LOGICAL_INFERENCE
from eval.task import import_extra
from onlstm_hf.hub.cards.published import central_figures, citation

PUBLISHED = central_figures(LOGICAL_INFERENCE)
PUBLISHED_NOTE = f"published: {citation(PUBLISHED[0])}; trained on at most 6 operators, too"


def logic_table(files: Results, all_lengths: bool = False) -> Table:
    """Returns one row per number of operators and one column per run, followed by the published models.

    `all_lengths` adds the numbers of operators below the training maximum.
    """
    rows, runs = [], files.values()
    shortest = 0 if all_lengths else _max_train_operators(runs)
    for number in _numbers_of_operators(runs):
        if int(number) < shortest:
            continue
        groups = [run["test"]["by_operators"].get(number) for run in runs]
        total = next(group["total"] for group in groups if group)
        published = [str(model["accuracy"].get(int(number), "")) for model in PUBLISHED]
        accuracies = [per_cent(group["accuracy"]) if group else "-" for group in groups]
        rows.append([number, str(total), *accuracies, *published])
    summary = [
        ["all", "", *(per_cent(run["test"]["accuracy"]) for run in runs)],
        ["macro average", "", *(per_cent(run["test"]["macro_accuracy"]) for run in runs)],
        ["validation", "", *(per_cent(run["validation_accuracy"]) for run in runs)],
        ["parameters", "", *(str(run["parameters"]) for run in runs)],
        ["epochs", "", *(str(run["epochs"]) for run in runs)],
    ]
    empty = [""] * len(PUBLISHED)
    header = ["operators", "pairs", *files, *(f"{model['system']} (published)" for model in PUBLISHED)]
    return header, [*rows, [], *(row + empty for row in summary)]


def _max_train_operators(runs: Collection[dict]) -> int:
    return min(run["recipe"]["max_train_operators"] for run in runs)


def _numbers_of_operators(runs: Collection[dict]) -> list[str]:
    return sorted({number for run in runs for number in run["test"]["by_operators"]}, key=int)


def draw_accuracies(files: Results, path: str) -> None:
    """Writes the figure: a curve per run, and a line after the longest pairs that all runs were trained on."""
    pyplot = import_extra("matplotlib.pyplot", extra="benchmark")
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name, run in files.items():
        by_operators = run["test"]["by_operators"]
        numbers = sorted(by_operators, key=int)
        accuracies = [100 * by_operators[number]["accuracy"] for number in numbers]
        axes.plot(list(map(int, numbers)), accuracies, marker=".", label=name)
    trained = _max_train_operators(files.values())
    axes.axvline(trained + 0.5, color="grey", linestyle="--", label=f"trained on at most {trained}")
    axes.set(xlabel="number of operators", ylabel="accuracy (%)")
    axes.set_xticks([int(number) for number in _numbers_of_operators(files.values())])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    with pyplot.rc_context({"svg.hashsalt": "onlstm_hf"}):  # makes the SVG file reproducible
        figure.savefig(path, dpi=150, metadata={"Date": None} if Path(path).suffix == ".svg" else None)
    pyplot.close(figure)
