"""Logical inference: accuracy of several runs by number of operators, as a table and as the papers' figure.

    python eval/compare_logic.py runs/logic_onlstm/results.json runs/logic_lstm/results.json --plot logic.png

training/train_logic.py writes the results files. The figure needs the extra `benchmark`.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.by_task.logic import PUBLISHED_NOTE, draw_accuracies, logic_table
from eval.report.results_files import read_results
from eval.report.tables import format_table
from eval.report.tasks import LOGICAL_INFERENCE
from eval.task import run_task, task_parser
from onlstm_hf.logic.formulas import MAX_OPERATORS
from onlstm_hf.utils.files import check_writable


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__, has_results=False)
    parser.add_argument("results", nargs="+", metavar="RESULTS.json", help="results.json of training/train_logic.py")
    parser.add_argument("--plot", metavar="FILE", help="figure to write, as .png, .svg or .pdf")
    return parser


def compare_logic(options: argparse.Namespace) -> None:
    """Prints the table and draws the figure."""
    check_writable(options.plot)
    runs = [read_results(path, [LOGICAL_INFERENCE]) for path in options.results]
    names = [run["name"] for run in runs]
    if len(set(names)) < len(names):
        names = options.results
    files = dict(zip(names, runs, strict=True))
    print(f"accuracy by number of operators, in per cent; {MAX_OPERATORS} means {MAX_OPERATORS} or more\n")
    print(format_table(*logic_table(files, all_lengths=True)))
    print(f"\n{PUBLISHED_NOTE}")
    if options.plot:
        draw_accuracies(files, options.plot)


main = partial(run_task, "eval/compare_logic.py", build_parser, compare_logic)

if __name__ == "__main__":
    sys.exit(main())
