"""Collects results files into RESULTS.md: a table a task, and the command, date and machine behind each row.

    python eval/write_report.py
    python eval/write_report.py --results runs/*/results.json --output report.md

The files are what the scripts here write with --output and training/train_logic.py leaves as results.json. To add a
row, put such a file into eval/results and run this again. Of results of logical inference there is also a figure.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.by_task.language_models import HEADER as OVERVIEW_HEADER
from eval.report.by_task.language_models import NOTE as OVERVIEW_NOTE
from eval.report.by_task.language_models import overview
from eval.report.by_task.logic import draw_accuracies
from eval.report.by_task.training_runs import NOTE as TRAINING_RUNS_NOTE
from eval.report.by_task.training_runs import read_training_runs, training_table
from eval.report.results_files import Run, check_writable, read_results
from eval.report.sections import SECTIONS
from eval.report.tables import markdown_table
from eval.report.tasks import LANGUAGE_MODELLING, LOGICAL_INFERENCE
from onlstm_hf.utils.files import written_file
from onlstm_hf.utils.programs import run_program

RESULTS = Path("eval", "results")

INTRODUCTION = """\
# Results

`python eval/write_report.py` makes this file from the files in `eval/results`; nothing in it is typed by hand. A
number in brackets names the run that a row comes from. Its command, at the end, gives the row again (speed and
training within what machines, threads and random numbers change), with the data in the folder that the environment
variable `ONLSTM_SHARED` names: `data/ptb` (the Penn Treebank text for language
modelling), `data/wsj_sample` (its free sample of trees), `data/syneval` (Marvin & Linzen 2018), `data/blimp`
(Warstadt et al. 2020) and `data/logic` (Bowman et al. 2015). Rows marked as published are those of others, from
`onlstm_hf/hub/cards/published.yaml`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    options = build_parser().parse_args(arguments)
    return run_program("write_report.py", lambda: write_report(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", nargs="+", metavar="FILE", help="results files (all of eval/results)")
    parser.add_argument("--output", metavar="FILE", default="RESULTS.md", help="(%(default)s)")
    parser.add_argument(
        "--logic-figure", metavar="FILE", default="docs/logic.svg", help="of logical inference (%(default)s)"
    )
    return parser


def write_report(options: argparse.Namespace) -> None:
    """Writes the report and, where there are results of logical inference, their figure."""
    check_writable(options.output)
    paths = options.results or sorted(str(path) for path in RESULTS.glob("*.json"))
    if not paths:
        raise FileNotFoundError("there are no results: run this in a checkout, or give --results FILE ...")
    runs = [Run(number, path, read_run(path)) for number, path in enumerate(paths, start=1)]
    logic = [run.results for run in runs if run.results["task"] == LOGICAL_INFERENCE]
    if logic:
        check_writable(options.logic_figure)
        draw_accuracies([results["name"] for results in logic], logic, options.logic_figure)
    trained = {} if options.results else read_training_runs(RESULTS)
    with written_file(options.output) as file:
        file.write(report(runs, trained, options.logic_figure))


def read_run(path: str) -> dict:
    """A results file that says how it came about.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is of no task that has a table, or does not say so.
    """
    results = read_results(path, SECTIONS)
    for field in ("command", "date", "machine", "versions"):
        if field not in results:
            raise ValueError(f"{path} does not say its {field}: an older version wrote it; run its script again")
    return results


def report(runs: Sequence[Run], trained: Mapping[str, Sequence[dict]], logic_figure: str) -> str:
    """The whole report; `trained` is what `read_training_runs` gives."""
    parts = [INTRODUCTION]
    for task, (heading, section) in SECTIONS.items():
        of_task = [run for run in runs if run.results["task"] == task]
        if of_task:
            parts += [f"## {heading}", section(of_task)]
            if task == LANGUAGE_MODELLING:
                parts.insert(-1, f"{OVERVIEW_NOTE}.\n\n{markdown_table(OVERVIEW_HEADER, overview(of_task, trained))}")
            if task == LOGICAL_INFERENCE:
                parts.append(f"![Accuracy by number of operators]({logic_figure})")
    if trained:
        parts += ["## Training", f"{TRAINING_RUNS_NOTE}.\n\n{markdown_table(*training_table(trained))}"]
    return "\n\n".join([*parts, "## Runs", *map(describe_run, runs)]) + "\n"


def describe_run(run: Run) -> str:
    """How a results file came about."""
    results, machine = run.results, run.results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    where = f"{machine.get('gpu', machine['cpu'])}, {machine['cores']} cores, {machine['threads']} in use"
    note = f" Note: {results['note']}." if results.get("note") else ""
    return (
        f"[{run.number}] `{run.path}`, {results['date'][:10]}, {where}; {versions}.{note}\n\n"
        f"```bash\n{results['command']}\n```"
    )


if __name__ == "__main__":
    sys.exit(main())
