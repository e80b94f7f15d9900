"""The tables of ListOps: accuracy by length of the expressions, and how induced trees fit."""

from collections.abc import Sequence

from eval.report.tasks import LISTOPS
from onlstm_hf.hub.cards.published import published_figures

PUBLISHED = published_figures(LISTOPS)
PUBLISHED_NOTE = (
    "rows marked as published are of other expressions, drawn alike, and were taken from a list of reference figures "
    "and not checked against the papers"
)


def accuracy_table(
    names: Sequence[str], runs: Sequence[dict], numbers: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows, in per cent: one for each run, with its number, then one for every published system."""
    lengths = sorted({name for run in runs for name in run["test"]["by_length"]}, key=_first)
    rows = [
        [
            name,
            f"{run['parameters']:,}",
            str(run["epochs"]),
            f"{100 * run['test']['accuracy']:.1f}",
            *(_accuracy(run["test"]["by_length"].get(length)) for length in lengths),
            _trained_on(run["recipe"]["max_train_length"]),
            number,
        ]
        for name, run, number in zip(names, runs, numbers, strict=True)
    ]
    for row in PUBLISHED:
        deviation = row["accuracy"].get("standard_deviation")
        figure = f"{row['accuracy']['mean']}" + (f" ± {deviation}" if deviation else "")
        rows.append(
            [
                f"{row['system']} (published)",
                "",
                "",
                figure,
                *[""] * len(lengths),
                "",
                f"{row['source']} ({row['seen']})",
            ]
        )
    by_length = (f"{length} tokens" for length in lengths)
    return ["model", "parameters", "epochs", "accuracy", *by_length, "trained on", "run"], rows


def depth_table(names: Sequence[str], runs: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: accuracy in per cent by the depth of the lists, a column for each run."""
    depths = sorted({depth for run in runs for depth in run["test"]["by_depth"]}, key=int)
    rows = []
    for depth in depths:
        groups = [run["test"]["by_depth"].get(depth) for run in runs]
        total = next(group["total"] for group in groups if group)
        rows.append([depth, str(total), *map(_accuracy, groups)])
    return ["depth", "expressions", *names], rows


def trees_table(names: Sequence[str], runs: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Header and rows, in per cent: one for each run that induces trees, then one for each baseline."""
    rows, baselines = [], {}
    for name, run in zip(names, runs, strict=True):
        for system, scores in (run["trees"] or {}).items():
            figures = [f"{100 * scores['f1']:.1f}", f"{100 * scores['list_recall']:.1f}"]
            if system == "induced":
                rows.append([name, *figures])
            else:
                baselines[(system, *figures)] = None
    return ["trees", "F1, binary trees", "recall of lists"], rows + [list(row) for row in baselines]


def _first(length: str) -> int:
    return int(length.partition("-")[0])


def _accuracy(group: dict | None) -> str:
    return f"{100 * group['accuracy']:.1f}" if group else "-"


def _trained_on(longest: int | None) -> str:
    return "all" if longest is None else f"at most {longest} tokens"
