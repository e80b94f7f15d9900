"""The course of training runs: the F1 of each layer's trees and the perplexity after every epoch.

    python eval/courses/plot_courses.py runs/onlstm/log.jsonl runs/prpn/log.jsonl --plot courses.svg

The logs are those that training/train_lm.py writes where it has gold trees. The table says for each layer when its
trees were best and how good they were when perplexity was. The picture needs the extra `benchmark`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout that this script belongs to

from eval.extras import import_extra
from eval.report.results_files import check_writable
from eval.report.tables import markdown_table
from onlstm_hf.utils.files import split_lines
from onlstm_hf.utils.programs import run_program

LAYER = "parsing_f1_layer_"
ALL_LAYERS = "all layers"


class Course(NamedTuple):
    """What was measured after each epoch of a run.

    Attributes:
        epochs: their numbers.
        perplexity: that of the validation text.
        f1: sentence F1 in per cent by layer, with the papers' rule; of a PRPN there is one for all layers.
    """

    epochs: list[int]
    perplexity: list[float]
    f1: dict[str, list[float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    options = build_parser().parse_args(arguments)
    return run_program("plot_courses.py", lambda: compare_courses(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="log.jsonl", help="what training/train_lm.py wrote")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="of the runs, in their order")
    parser.add_argument("--plot", metavar="FILE", help="the picture; its ending says which kind (.png, .svg, .pdf)")
    return parser


def compare_courses(options: argparse.Namespace) -> None:
    """Prints the table and draws the picture."""
    check_writable(options.plot)
    names = options.names or options.logs
    if len(names) != len(options.logs):
        raise ValueError(f"there are {len(options.logs)} logs and {len(names)} names")
    courses = dict(zip(names, map(read_course, options.logs), strict=True))
    print(course_table(courses))
    if options.plot:
        draw_courses(courses, options.plot)


def read_course(path: str) -> Course:
    """The course of a run from its log.

    Raises:
        ValueError: if the log has no F1 of an epoch.
    """
    entries = [json.loads(line) for line in split_lines(Path(path).read_text(encoding="utf-8"))]
    entries = [entry for entry in entries if "validation_perplexity" in entry and "parsing_f1" in entry]
    if not entries:
        raise ValueError(f"{path} has no F1 of an epoch: train with --gold_trees")
    layers = {f"layer {name.removeprefix(LAYER)}": name for name in entries[0] if name.startswith(LAYER)}
    return Course(
        [entry["epoch"] for entry in entries],
        [entry["validation_perplexity"] for entry in entries],
        {layer: [entry[name] for entry in entries] for layer, name in (layers or {ALL_LAYERS: "parsing_f1"}).items()},
    )


def course_table(courses: dict[str, Course]) -> str:
    """A row for each layer of each run."""
    rows = []
    for name, course in courses.items():
        best_text = course.perplexity.index(min(course.perplexity))
        for layer, f1 in course.f1.items():
            best_trees = f1.index(max(f1))
            rows.append(
                [name, layer, f"{f1[best_trees]:.1f}", str(course.epochs[best_trees]), f"{f1[best_text]:.1f}",
                 f"{course.perplexity[best_text]:.2f}", str(course.epochs[best_text])]
            )  # fmt: skip
    header = ["run", "trees of", "best F1", "after epoch", "F1 at the best perplexity", "perplexity", "after epoch"]
    return markdown_table(header, rows)


def draw_courses(courses: dict[str, Course], path: str) -> None:
    """Writes a picture: a column for each run, F1 above perplexity. Its kind is that of the file's ending."""
    pyplot = import_extra("matplotlib.pyplot", extra="benchmark")
    size = (4.5 * len(courses), 5.5)
    figure, panels = pyplot.subplots(2, len(courses), figsize=size, sharex="col", sharey="row", squeeze=False)
    for (above, below), (name, course) in zip(panels.T, courses.items(), strict=True):
        above.set_title(name, fontsize="medium")
        for layer, f1 in course.f1.items():
            above.plot(course.epochs, f1, marker=".", label=layer)
        above.legend(frameon=False, fontsize="small")
        below.plot(course.epochs, course.perplexity, marker=".", color="black")
        below.set(xlabel="epoch", yscale="log")
        below.yaxis.set_major_formatter("{x:.0f}")
        below.yaxis.set_minor_formatter("{x:.0f}")
        for axes in (above, below):
            axes.grid(alpha=0.3, which="both")
    panels[0, 0].set_ylabel("sentence F1, %")
    panels[1, 0].set_ylabel("perplexity of the validation text")
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
