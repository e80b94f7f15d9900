"""What each optimisation gives: whole training steps and parsing with one of them switched off at a time.

    python eval/benchmark_ablations.py --text train.txt --treebank wsj/ --output ablations.json
    python eval/benchmark_ablations.py --text train.txt --cases "training prpn float32" --rounds 3

The steps are those of `train_lm.py` by the recipes of the released models, batch by batch of the text; the sentences
are parsed by the released models. With and without take turns on the same batch. What is compared is the time of the
CPU in one thread, which other programs on the machine hardly change: the table has the ratios "without" by "with",
their median and quartiles. Peak memory is that of a step above what is there before it (the weights and the
optimiser's moments), with freed blocks given back to the system at once.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.results_files import check_writable
from eval.report.tables import markdown_table
from eval.speed.ablation_turns import WITH_ALL, Start, measure_peaks, take_turns
from eval.speed.ablations import CASES
from eval.speed.measurement import Spread, ratios
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import write_results

# One in that many of the sentences is parsed in a turn.
SENTENCES_STEP = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("benchmark_ablations.py", lambda: benchmark_ablations(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, metavar="FILE", help="training text, a sentence a line")
    parser.add_argument("--treebank", metavar="PATH", help="sentences to parse: Penn-style trees, a file or folder")
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", help="of %(choices)s (all that can run)")
    parser.add_argument("--rounds", type=positive_integer, default=9, metavar="N", help="turns of each (%(default)s)")
    parser.add_argument("--output", metavar="FILE", help="everything that was measured, as JSON")
    return parser


def benchmark_ablations(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Measures the cases asked for, and prints a table of each as it comes and all of them at the end.

    The results are written after every case.

    Raises:
        ValueError: if a case of parsing is asked for by name, but no treebank is given.
    """
    check_writable(options.output)
    names = options.cases or [name for name, case in CASES.items() if options.treebank or not case.parses]
    if not options.treebank and any(CASES[name].parses for name in names):
        raise ValueError("parsing needs sentences: --treebank")
    torch.set_num_threads(1)  # as in the processes that are measured: the results file says so
    sentences = [list(tree.words) for tree in read_treebank(options.treebank)] if options.treebank else []
    seconds, peaks = {}, {}
    results = {"task": "optimisations", "rounds": options.rounds, "seconds": seconds, "peaks": peaks}
    for name in names:
        start = Start(CASES[name], options.text, sentences[::SENTENCES_STEP])
        seconds[name] = take_turns(start, options.rounds)
        print(f"\n{time_table({name: seconds[name]})}", flush=True)
        if not start.case.parses:
            peaks[name] = measure_peaks(start)
            print(f"\n{memory_table({name: peaks[name]})}", flush=True)
        if options.output:
            write_results(options.output, results, "eval/benchmark_ablations.py", arguments)
    if len(names) > 1:
        print(f"\n{time_table(seconds)}" + (f"\n\n{memory_table(peaks)}" if peaks else ""))


def time_table(seconds: dict[str, dict[str, list[float]]]) -> str:
    """By case the time with all optimisations, in milliseconds, and what is multiplied with it without each."""

    def cell(times: dict[str, list[float]], name: str) -> str:
        if name == WITH_ALL:
            return str(Spread.of(1000 * time for time in times[name]))
        return str(Spread.of(ratios(times[name], times[WITH_ALL]))) if name in times else ""

    return _table("time without / with", seconds, cell, f"{WITH_ALL}, ms")


def memory_table(peaks: dict[str, dict[str, int]]) -> str:
    """By case the peak with all optimisations and without each, in MiB."""

    def cell(bytes_by_name: dict[str, int], name: str) -> str:
        return f"{bytes_by_name[name] / 2**20:.0f}" if name in bytes_by_name else ""

    return _table("peak memory without, MiB", peaks, cell, WITH_ALL)


def _table(title: str, measured: dict[str, dict], cell: Callable[[dict, str], str], first: str) -> str:
    rows = [[first, *(cell(case, WITH_ALL) for case in measured.values())]]
    names = dict.fromkeys(name for case in measured.values() for name in case if name != WITH_ALL)
    rows += [[name, *(cell(case, name) for case in measured.values())] for name in names]
    return markdown_table([title, *measured], rows)


if __name__ == "__main__":
    sys.exit(main())
