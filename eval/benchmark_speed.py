"""Speed of every path of the ordered-neurons recurrence, against the readable loop and against its products alone.

    python eval/benchmark_speed.py --output speed.json --plot speed.png --markdown
    python eval/benchmark_speed.py --cases recurrence step --size small --threads 2
    python eval/benchmark_speed.py --cases parsing --treebank wsj.mrg
    python eval/benchmark_speed.py --cases --loss-curves train.txt

Cases: `recurrence` (training pass of a recurrent stack), `step` (whole update of train_lm.py: embedding, dropouts,
softmax, clipping, optimiser), `parsing`, `prpn` (training step and parsing of a PRPN, against its modules run one word
after the other), `growth` (of the recurrence with batch size, length and width), `memory` (peak of a training step)
and `scoring` (of all baselines, where --treebank has gold trees). Each path is compared with the readable reference,
the recurrence also with torch.nn.LSTM layers of the same sizes (cuDNN on a GPU) and with its matrix products alone.
All contestants take turns in every round, and a ratio is that of two times of the same round: its median and quartiles
over the rounds are printed.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.extras import import_extra
from eval.report.results_files import check_writable
from eval.report.tables import format_table, markdown_table
from eval.report.tasks import SPEED
from eval.speed.cases import (
    REFERENCE,
    length_rows,
    measure_growth,
    measure_loss_curves,
    measure_memory,
    measure_parsing,
    measure_recurrence,
    measure_scoring,
    measure_step,
    random_sentences,
)
from eval.speed.contestants import LSTM, PRODUCTS
from eval.speed.measurement import Spread, ratios
from eval.speed.plot import draw_growth
from eval.speed.prpn import measure_prpn
from eval.speed.rows import HEADER, SETTINGS_NOTE, Outcome, Row, summary
from eval.speed.scales import SCALES, Scale
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.files import read_text_file
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import describe_machine, write_results

CASES = ("recurrence", "step", "parsing", "prpn", "growth", "memory", "scoring")
NUM_SENTENCES = 3914
NUM_QUICK_SENTENCES = 12


def main(arguments: Sequence[str] | None = None, allocator: str = "default") -> int:
    """Runs the script and returns its exit code.

    Args:
        arguments: of the command line.
        allocator: what the C library does with memory that this process frees, for the column of this name.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("benchmark_speed.py", lambda: benchmark_speed(options, arguments, allocator))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, default=CASES, metavar="CASE", help=f"of {', '.join(CASES)} (all)"
    )
    parser.add_argument("--size", choices=["full", "small"], default="full", help="of the models (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny models and two rounds: whether everything runs")
    parser.add_argument("--rounds", type=positive_integer, metavar="N", help="turns of every contestant (7)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="a GPU where there is one")
    parser.add_argument("--threads", type=positive_integer, metavar="N", help="of the CPU")
    sentences = parser.add_mutually_exclusive_group()
    sentences.add_argument("--treebank", metavar="PATH", help="sentences to parse: Penn-style trees, a file or folder")
    sentences.add_argument("--text", metavar="FILE", help="the same from a text, a sentence a line; else random ones")
    parser.add_argument(
        "--loss-curves",
        metavar="FILE",
        help="also train on this text with reference and fast path, and compare",
    )
    parser.add_argument("--loss-steps", type=positive_integer, default=200, metavar="N", help="updates (%(default)s)")
    parser.add_argument(
        "--loss-overrides",
        default="--batch_size=8 --bptt_length=35",
        metavar="ARGUMENTS",
        help="of the recipe onlstm_ptb_small, which is trained for the curves (%(default)s)",
    )
    parser.add_argument("--output", metavar="FILE", help="everything that was measured, as JSON")
    parser.add_argument("--plot", metavar="FILE", help="picture of the case growth: .png, .svg or .pdf")
    parser.add_argument("--markdown", action="store_true", help="print the summary as a Markdown table")
    return parser


def benchmark_speed(options: argparse.Namespace, arguments: Sequence[str], allocator: str) -> None:
    """Measures the cases asked for, prints them as they come and a summary at the end, and writes the files."""
    check_writable(options.output, options.plot)
    if options.plot:
        import_extra("matplotlib", extra="benchmark")
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # float32 is float32
    scale = SCALES["quick" if options.quick else options.size]
    rounds = options.rounds or (2 if options.quick else 7)
    sentences = read_sentences(options, scale) if {"parsing", "prpn"} & set(options.cases) else []

    machine = describe_machine(device)
    print(", ".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    results = {"task": SPEED, "device": device.type, "rounds": rounds}
    rows: list[Row] = []
    measured_cases = {
        "recurrence": lambda: measure_recurrence(scale, rounds, device),
        "step": lambda: measure_step(scale, rounds, device),
        "parsing": lambda: measure_parsing(scale, rounds, device, sentences),
        "prpn": lambda: measure_prpn(scale.prpn, rounds, device, sentences),
    }
    for case, measure in measured_cases.items():
        if case in options.cases:
            outcomes = measure()
            results[case] = list(map(show, outcomes))
            rows += [row for outcome in outcomes for row in outcome.rows]
    if "growth" in options.cases:
        growth = measure_growth(scale, rounds, device)
        results["growth"] = {what: [show(outcome) for _, outcome in steps] for what, steps in growth.items()}
        rows += length_rows(growth["length"])
        if options.plot:
            draw_growth(
                seconds_per_token(growth), options.plot, f"{machine.get('gpu', machine['cpu'])}, {rounds} rounds"
            )
    if "memory" in options.cases:
        peaks, memory_rows = measure_memory(scale, device)
        results["memory"] = peaks
        rows += memory_rows
        table = format_table(["path", "MiB"], [[name, f"{peak / 2**20:.1f}"] for name, peak in peaks.items()])
        print(f"\n{memory_rows[0].case}\n{table}", flush=True)
    if "scoring" in options.cases and options.treebank:
        row = measure_scoring(read_treebank(options.treebank), rounds)
        results["scoring"] = {"seconds": row.rounds}
        rows.append(row)
    if options.loss_curves:
        overrides = shlex.split(options.loss_overrides)
        results["loss_curves"], loss_rows = measure_loss_curves(
            "onlstm_ptb_small", Path(options.loss_curves), overrides, options.loss_steps
        )
        rows += loss_rows

    rows = [replace(row, allocator=row.allocator or allocator) for row in rows]
    table = markdown_table(HEADER, [row.cells() for row in rows]) if options.markdown else summary(rows)
    print(f"\n{table}\n\n{SETTINGS_NOTE}.")
    if options.output:
        results["rows"] = [row.to_dict() for row in rows]
        write_results(options.output, results, "eval/benchmark_speed.py", arguments)


def read_sentences(options: argparse.Namespace, scale: Scale) -> list[list[int]]:
    """Token ids of the sentences to parse; words are numbered as they come, as random weights know none of them."""
    if options.treebank:
        sentences = [list(tree.words) for tree in read_treebank(options.treebank)]
    elif options.text:
        sentences = [line.split() for line in read_text_file(options.text)]
    else:
        return random_sentences(scale, NUM_QUICK_SENTENCES if options.quick else NUM_SENTENCES)
    vocabulary: dict[str, int] = {}
    size = scale.model.get("vocab_size", 10000)
    return [[vocabulary.setdefault(word, len(vocabulary)) % size for word in words] for words in sentences if words]


def show(outcome: Outcome) -> dict:
    """Prints what a case found, and returns it for the JSON file."""
    print(f"\n{outcome.title}\n{contestants_table(outcome)}", flush=True)
    for name, reason in outcome.left_out.items():
        print(f"{name} was left out: {reason}")
    return asdict(outcome)


def contestants_table(outcome: Outcome) -> str:
    """The speed of every contestant, also relative to the reference, the LSTM layers and the products that ran."""
    seconds = outcome.seconds
    reference = next(name for name in seconds if name.startswith(REFERENCE))
    table = []
    for name, times in seconds.items():
        precision = name.split()[-1]
        speed = Spread.of(outcome.num_tokens / time for time in times)
        others = [f"{other} {precision}" for other in (LSTM, PRODUCTS)]
        speed_of_reference = Spread.of(ratios(seconds[reference], times))
        relative = [str(Spread.of(ratios(times, seconds[other]))) if other in seconds else "" for other in others]
        table.append([name, str(speed), str(speed_of_reference), *relative])
    header = ["path", "tokens/s", f"speed / {REFERENCE}", f"time / {LSTM}", f"time / {PRODUCTS}"]
    used = [column for column in range(len(header)) if any(line[column] for line in table)]
    header, *table = ([line[column] for column in used] for line in (header, *table))
    return format_table(header, table)


def seconds_per_token(growth: dict[str, list[tuple[int, Outcome]]]) -> dict[str, dict]:
    """What `draw_growth` draws, of the contestants that ran at every value."""
    curves = {}
    for what, steps in growth.items():
        names = [name for name in steps[0][1].seconds if all(name in outcome.seconds for _, outcome in steps)]
        curves[what] = {
            "values": [value for value, _ in steps],
            "seconds_per_token": {
                name: [Spread.of(time / outcome.num_tokens for time in outcome.seconds[name]) for _, outcome in steps]
                for name in names
            },
        }
    return curves


if __name__ == "__main__":
    # As the training scripts do.
    sys.exit(main(allocator="kept" if keep_freed_memory() else "default"))
