"""The table and the figure of logical inference: accuracy by number of operators, beside what papers report."""

from collections.abc import Sequence
from pathlib import Path

from eval.report.tables import Table, per_cent
from eval.report.tasks import LOGICAL_INFERENCE
from eval.task import import_extra
from onlstm_hf.hub.cards.published import central_figures, citation

PUBLISHED = central_figures(LOGICAL_INFERENCE)
PUBLISHED_NOTE = f"published: {citation(PUBLISHED[0])}; trained on at most 6 operators, too"


def logic_table(names: Sequence[str], runs: Sequence[dict]) -> Table:
    """Header and rows: one for every number of operators, with the number of its pairs.

    There is a column for every run and, behind them, for every published model.
    """
    rows = []
    for number in numbers_of_operators(runs):
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
    header = ["operators", "pairs", *names, *(f"{model['system']} (published)" for model in PUBLISHED)]
    return header, [*rows, [], *(row + empty for row in summary)]


def numbers_of_operators(runs: Sequence[dict]) -> list[str]:
    """The numbers of operators that occur in the results, ascending."""
    return sorted({number for run in runs for number in run["test"]["by_operators"]}, key=int)


def draw_accuracies(names: Sequence[str], runs: Sequence[dict], path: str) -> None:
    """Writes the figure: a curve for every run, and a line behind the longest pairs that all were trained on."""
    pyplot = import_extra("matplotlib.pyplot", extra="benchmark")
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name, run in zip(names, runs, strict=True):
        by_operators = run["test"]["by_operators"]
        numbers = sorted(by_operators, key=int)
        accuracies = [100 * by_operators[number]["accuracy"] for number in numbers]
        axes.plot(list(map(int, numbers)), accuracies, marker=".", label=name)
    trained = min(run["recipe"]["max_train_operators"] for run in runs)
    axes.axvline(trained + 0.5, color="grey", linestyle="--", label=f"trained on at most {trained}")
    axes.set(xlabel="number of operators", ylabel="accuracy (%)")
    axes.set_xticks([int(number) for number in numbers_of_operators(runs)])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    with pyplot.rc_context({"svg.hashsalt": "onlstm_hf"}):  # the same results give the same SVG file
        figure.savefig(path, dpi=150, metadata={"Date": None} if Path(path).suffix == ".svg" else None)
    pyplot.close(figure)
