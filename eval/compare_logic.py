"""Logical inference: the accuracy of several runs by number of operators, as a table and as the papers' figure.

    python eval/compare_logic.py runs/logic_onlstm/results.json runs/logic_lstm/results.json --plot logic.png

The results are those that training/train_logic.py leaves. The picture needs the extra `benchmark`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.tables import format_table
from eval.utils import check_writable, import_extra, read_results
from onlstm_hf.logic.formulas import MAX_OPERATORS
from onlstm_hf.utils.programs import run_program

TASK = "logical inference"
# Test accuracy of models that were trained on at most 6 operators, in per cent: Shen et al., "Ordered Memory" (NeurIPS
# 2019), table 1. Shen et al. (ICLR 2019) show theirs as a figure only. RRNet is the recurrent-recursive network of
# Jacob et al. (2018); the Tree-LSTM reads the gold brackets.
PUBLISHED_NUMBERS = ("7", "8", "9", "10", "11", "12")
PUBLISHED = {
    "ON-LSTM": (91, 87, 85, 81, 78, 75),
    "LSTM": (88, 84, 80, 78, 71, 69),
    "RRNet": (84, 81, 78, 74, 72, 71),
    "Tree-LSTM": (94, 92, 92, 88, 87, 86),
}
PUBLISHED_NOTE = "published: Shen et al. (2019), Ordered Memory, table 1; trained on at most 6 operators, too"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    options = build_parser().parse_args(arguments)
    return run_program("compare_logic.py", lambda: compare_logic(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULTS.json", help="what training/train_logic.py wrote")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="of the runs, in their order")
    parser.add_argument("--plot", metavar="FILE", help="the figure; its kind is that of the ending (.png, .svg, .pdf)")
    return parser


def compare_logic(options: argparse.Namespace) -> None:
    """Prints the table and draws the figure."""
    check_writable(options.plot)
    runs = [read_results(path, [TASK]) for path in options.results]
    names = options.names or [run["name"] for run in runs]
    if len(names) != len(runs):
        raise ValueError(f"there are {len(runs)} results and {len(names)} names")
    print(f"accuracy by number of operators, in per cent; {MAX_OPERATORS} means {MAX_OPERATORS} or more\n")
    print(format_table(*logic_table(names, runs)))
    print(f"\n{PUBLISHED_NOTE}")
    if options.plot:
        draw_accuracies(names, runs, options.plot)


def logic_table(names: Sequence[str], runs: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: one for every number of operators, with the number of its pairs.

    There is a column for every run and, behind them, for every published model.
    """
    rows = []
    for number in numbers_of_operators(runs):
        groups = [run["test"]["by_operators"].get(number) for run in runs]
        total = next(group["total"] for group in groups if group)
        published = [dict(zip(PUBLISHED_NUMBERS, row, strict=True)).get(number, "") for row in PUBLISHED.values()]
        accuracies = [f"{100 * group['accuracy']:.1f}" if group else "-" for group in groups]
        rows.append([number, str(total), *accuracies, *map(str, published)])
    summary = [
        ["all", "", *(f"{100 * run['test']['accuracy']:.1f}" for run in runs)],
        ["macro average", "", *(f"{100 * run['test']['macro_accuracy']:.1f}" for run in runs)],
        ["validation", "", *(f"{100 * run['validation_accuracy']:.1f}" for run in runs)],
        ["parameters", "", *(str(run["parameters"]) for run in runs)],
        ["epochs", "", *(str(run["epochs"]) for run in runs)],
    ]
    empty = [""] * len(PUBLISHED)
    header = ["operators", "pairs", *names, *(f"{name} (published)" for name in PUBLISHED)]
    return header, [*rows, [], *(row + empty for row in summary)]


def numbers_of_operators(runs: Sequence[dict]) -> list[str]:
    """The numbers that occur, ascending."""
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


if __name__ == "__main__":
    sys.exit(main())
