"""Speed of every implementation of the recurrence against the reference loop and against nn.LSTM.

    python eval/benchmark_speed.py --output speed.json
    python eval/benchmark_speed.py --cases step --recipe prpn_lm_ptb
    python eval/benchmark_speed.py --cases --loss-curves train.txt

Cases: `recurrence` (training pass of a recurrent stack, also by torch.nn.LSTM), `step` (whole update of train_lm.py),
`parsing`, and on request `neighbours` (training passes on a CPU beside busy processes). All contestants run in every
round. A ratio compares two times of the same round; the script prints its median and quartiles over the rounds.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.tables import format_table, markdown_table
from eval.report.tasks import SPEED
from eval.speed.cases import (
    LSTM,
    REFERENCE,
    TINY_MODEL,
    measure_losses,
    measure_neighbours,
    measure_parsing,
    measure_recurrence,
    measure_step,
)
from eval.speed.measurement import Outcome, ratios, spread
from eval.task import run_task, task_parser
from onlstm_hf import ONLSTMConfig
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.programs import positive_integer
from onlstm_hf.utils.results_file import describe_machine

CASES = ("recurrence", "step", "parsing", "neighbours")


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, default=CASES[:-1], metavar="CASE", help=f"{', '.join(CASES)}"
    )
    parser.add_argument("--recipe", metavar="NAME", help="recipe of training/recipes for the case step (onlstm_ptb)")
    parser.add_argument("--quick", action="store_true", help="tiny models and two rounds, to test the script")
    parser.add_argument("--rounds", type=positive_integer, metavar="N", help="number of rounds (7)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="device (default: cuda if there is a GPU, else cpu)")
    parser.add_argument("--threads", type=positive_integer, metavar="N", help="number of CPU threads")
    parser.add_argument("--treebank", metavar="PATH", help="treebank of the sentences to parse (default: random)")
    parser.add_argument("--loss-curves", metavar="FILE", help="also compare the loss curves of training on this text")
    parser.add_argument("--markdown", action="store_true", help="print the summary as a Markdown table")
    return parser


def benchmark_speed(options: argparse.Namespace) -> dict:
    """Measures the cases, prints each result and a final summary, and returns the results."""
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.threads:
        torch.set_num_threads(options.threads)
    # TF32 would reduce the precision of float32 products on a GPU, and not for all contestants.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    quick, rounds = options.quick, options.rounds or (2 if options.quick else 7)
    recipe = options.recipe or ("onlstm_ptb_small" if quick else "onlstm_ptb")
    print(", ".join(f"{name}: {value}" for name, value in describe_machine(device).items()), flush=True)
    results = {"task": SPEED, "device": device.type, "rounds": rounds, "rows": []}
    measures = {
        "recurrence": lambda: measure_recurrence(quick, rounds, device),
        "step": lambda: measure_step(quick, rounds, device, recipe),
        "parsing": lambda: measure_parsing(quick, rounds, device, read_sentences(options)),
        "neighbours": lambda: measure_neighbours(quick, rounds),
    }
    for case in [case for case in CASES if case in options.cases]:
        outcomes = measures[case]()
        for outcome in outcomes:
            print(f"\n{outcome.title}\n{contestants_table(outcome)}", flush=True)
            for name, reason in outcome.left_out.items():
                print(f"{name} was left out: {reason}")
            results["rows"] += outcome.rows
        results[case] = list(map(asdict, outcomes))
    if options.loss_curves:
        results["loss_curves"], rows = measure_losses(quick, device, Path(options.loss_curves))
        results["rows"] += rows
    print(f"\n{summary_table(results['rows'], markdown_table if options.markdown else format_table)}")
    return results


def summary_table(rows: Sequence[dict], format_rows: Callable[[list, list], str]) -> str:
    header = ["case", "figure", "median (quartiles)"]
    return format_rows(header, [[row["case"], row["figure"], row["spread"]] for row in rows])


def contestants_table(outcome: Outcome) -> str:
    """Formats the speed of each contestant, also relative to the reference and to matching LSTM layers."""
    seconds, rows = outcome.seconds, []
    reference = next((times for name, times in seconds.items() if name.startswith(REFERENCE)), None)
    for name, times in seconds.items():
        speed = spread(outcome.num_tokens / time for time in times)
        lstm = seconds.get(f"{LSTM} {name.partition(' ')[2]}")
        faster = "" if reference is None else spread(ratios(reference, times))
        slower = "" if lstm is None else spread(ratios(times, lstm))
        rows.append([name, speed, faster, slower])
    return format_table(["path", "tokens/s", f"speed / {REFERENCE}", f"time / {LSTM}"], rows)


def read_sentences(options: argparse.Namespace) -> list[list[int]]:
    """Returns token ids of the sentences to parse; the weights are random, so any numbering of words will do."""
    vocab_size = TINY_MODEL["vocab_size"] if options.quick else ONLSTMConfig().vocab_size
    if not options.treebank:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(3, 41, (12 if options.quick else 3914,), generator=generator).tolist()
        return [torch.randint(vocab_size, (length,), generator=generator).tolist() for length in lengths]
    vocabulary: dict[str, int] = {}
    return [
        [vocabulary.setdefault(word, len(vocabulary)) % vocab_size for word in tree.words]
        for tree in read_treebank(options.treebank)
    ]


main = partial(run_task, "eval/benchmark_speed.py", build_parser, benchmark_speed)

if __name__ == "__main__":
    keep_freed_memory()  # as the training scripts do
    sys.exit(main())
