"""Speed of every path of the recurrence against the readable loop and against nn.LSTM.

    python eval/benchmark_speed.py --output speed.json
    python eval/benchmark_speed.py --cases recurrence step --size small --threads 2
    python eval/benchmark_speed.py --cases step --recipe prpn_lm_ptb
    python eval/benchmark_speed.py --cases parsing --treebank wsj.mrg
    python eval/benchmark_speed.py --cases neighbours --threads 2 --rounds 5
    python eval/benchmark_speed.py --cases --loss-curves train.txt

Cases: `recurrence` (training pass of a recurrent stack, also by torch.nn.LSTM), `step` (whole update of train_lm.py),
`parsing`, and only where it is asked for `neighbours` (training passes on a CPU beside processes that keep it busy).
All contestants take turns in every round. A ratio compares two times of the same round; its median and quartiles over
the rounds are printed.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.results_files import check_writable
from eval.report.tables import format_table, markdown_table
from eval.report.tasks import SPEED
from eval.speed.cases import (
    MODELS,
    Row,
    measure_losses,
    measure_parsing,
    measure_recurrence,
    measure_step,
)
from eval.speed.measurement import forbid_tf32
from eval.speed.neighbours import measure_neighbours
from eval.speed.outcome_table import machine_line, print_outcome, summary_table
from onlstm_hf import ONLSTMConfig
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import write_results

CASES = ("recurrence", "step", "parsing", "neighbours")
DEFAULT_CASES = CASES[:-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("benchmark_speed.py", lambda: benchmark_speed(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases",
        nargs="*",
        choices=CASES,
        default=DEFAULT_CASES,
        metavar="CASE",
        help=f"of {', '.join(CASES)} (all but the last)",
    )
    parser.add_argument("--size", choices=["full", "small"], default="full", help="size of the models (%(default)s)")
    parser.add_argument("--recipe", metavar="NAME", help="a recipe of training/recipes, for the case step")
    parser.add_argument("--quick", action="store_true", help="tiny models and two rounds: whether everything runs")
    parser.add_argument("--rounds", type=positive_integer, metavar="N", help="turns of every contestant (7)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="cuda if there is a GPU, else cpu")
    parser.add_argument("--threads", type=positive_integer, metavar="N", help="threads of the CPU")
    parser.add_argument("--treebank", metavar="PATH", help="gold trees whose sentences are parsed; else random ones")
    parser.add_argument("--loss-curves", metavar="FILE", help="also compare the losses of training on this text")
    parser.add_argument("--loss-steps", type=positive_integer, default=200, metavar="N", help="updates (%(default)s)")
    parser.add_argument(
        "--loss-overrides",
        default="--batch_size=8 --bptt_length=35",
        metavar="ARGUMENTS",
        help="overrides of the recipe onlstm_ptb_small, which is trained for the curves (%(default)s)",
    )
    parser.add_argument("--output", metavar="FILE", help="everything that was measured, as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the summary as a Markdown table")
    return parser


def benchmark_speed(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Measures the cases, prints each as it comes and a summary at the end, and writes the file."""
    check_writable(options.output)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.threads:
        torch.set_num_threads(options.threads)
    forbid_tf32()
    size = "quick" if options.quick else options.size
    rounds = options.rounds or (2 if options.quick else 7)
    print(machine_line(device), flush=True)
    results = {"task": SPEED, "device": device.type, "rounds": rounds}
    rows: list[Row] = []
    measures = {
        "recurrence": lambda: measure_recurrence(size, rounds, device),
        "step": lambda: measure_step(size, rounds, device, options.recipe),
        "parsing": lambda: measure_parsing(size, rounds, device, read_sentences(options, size)),
        "neighbours": lambda: measure_neighbours(size, rounds),
    }
    for case, measure in measures.items():
        if case in options.cases:
            outcomes = measure()
            results[case] = list(map(print_outcome, outcomes))
            rows += [row for outcome in outcomes for row in outcome.rows]
    if options.loss_curves:
        overrides = shlex.split(options.loss_overrides)
        results["loss_curves"], loss_rows = measure_losses(Path(options.loss_curves), overrides, options.loss_steps)
        rows += loss_rows
    print(f"\n{summary_table(rows, markdown_table if options.markdown else format_table)}")
    if options.output:
        results["rows"] = [row.to_dict() for row in rows]
        write_results(options.output, results, "eval/benchmark_speed.py", arguments)


def read_sentences(options: argparse.Namespace, size: str) -> list[list[int]]:
    """Token ids of the sentences to parse; words are numbered as they come, as random weights know none of them."""
    vocab_size = MODELS[size].get("vocab_size", ONLSTMConfig().vocab_size)
    if not options.treebank:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(3, 41, (12 if options.quick else 3914,), generator=generator).tolist()
        return [torch.randint(vocab_size, (length,), generator=generator).tolist() for length in lengths]
    vocabulary: dict[str, int] = {}
    return [
        [vocabulary.setdefault(word, len(vocabulary)) % vocab_size for word in tree.words]
        for tree in read_treebank(options.treebank)
    ]


if __name__ == "__main__":
    keep_freed_memory()  # as the training scripts do
    sys.exit(main())
