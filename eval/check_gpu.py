"""Checks the GPU paths on this machine's GPU in at most four minutes: tests, speed, and training beside the CPU's.

    python eval/check_gpu.py --output check_gpu.json --markdown check_gpu.md
    python eval/check_gpu.py --device cpu --quick

It needs a checkout, the package's own requirements, Triton and pytest, and none of the libraries for data or metrics.
It runs `pytest -m gpu`; it times recurrent stacks by every path and by torch.nn.LSTM, and whole updates of
train_lm.py, as `benchmark_speed.py` does; and it trains the recipe onlstm_ptb_small on Toy English, or on `--text`, on
the GPU and on the CPU. The second line tries the script itself where there is no GPU.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.results_files import check_writable
from eval.report.tables import markdown_table
from eval.report.tasks import SPEED
from eval.speed.cases import FIXED_LENGTHS, QUICK_OVERRIDES, Outcome, Row, measure_recurrence, measure_step
from eval.speed.measurement import forbid_tf32
from eval.speed.outcome_table import machine_line, print_outcome, summary_table
from eval.speed.training import Training, start_training, train_for
from onlstm_hf.utils.files import written_file
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.programs import run_program
from onlstm_hf.utils.results_file import write_results
from training.toy_english import generate_toy_treebank, tree_words

PROJECT_ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/fast/test_onlstm_triton.py", "tests/fast/test_prpn_triton.py")
# These need the library hypothesis.
FURTHER_TESTS = ("tests/fast/test_onlstm.py", "tests/fast/test_step_graphs.py")
# Recipes whose updates are timed, with overrides and paths of the recurrence.
STEPS = (
    ("onlstm_ptb", (), ("reference", "auto")),
    ("onlstm_ptb", ("--batch_size=80",), ("auto",)),
    ("onlstm_ptb", ("--batch_size=160",), ("auto",)),
    ("onlstm_ptb_small", (), ("reference", "auto")),
    ("prpn_ptb_small", (), ("reference", "auto")),
    ("prpn_ptb_small", ("--batch_size=128",), ("auto",)),
    ("prpn_lm_ptb", (), ("auto",)),
)
QUICK_STEPS = (("onlstm_ptb_small", (), ("reference", "auto")),)
TRAINED = "onlstm_ptb_small"
# Seconds: of everything, of the tests at most, of training on the GPU at most and on the CPU.
TIME_LIMIT, TEST_LIMIT, GPU_TRAINING, CPU_TRAINING = 235, 110, 120, 20
QUICK_TRAINING = 1
NUM_SENTENCES = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("check_gpu.py", lambda: check_gpu(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FILE", help="everything that was measured, as JSON")
    parser.add_argument("--markdown", metavar="FILE", help="the summary as a Markdown table")
    parser.add_argument("--text", metavar="FILE", help="a sentence a line, to train on instead of Toy English")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="what is checked (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny models and seconds: whether everything runs")
    return parser


def check_gpu(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Runs all checks, prints each as it comes, and writes the files.

    Raises:
        ValueError: where there is no GPU, and at the end where tests failed.
    """
    start, device = time.monotonic(), torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("PyTorch finds no CUDA GPU here; --device cpu --quick tries the script without one")
    check_writable(options.output)
    check_writable(options.markdown)
    forbid_tf32()
    machine = machine_line(device)
    print(machine, flush=True)
    results = {"task": SPEED, "device": device.type}
    results["tests"] = run_tests(TESTS[1:] if options.quick else available_tests())
    print(tests_line(results["tests"]), flush=True)

    size, rounds, steps = ("quick", 2, QUICK_STEPS) if options.quick else ("full", 3, STEPS)
    rows: list[Row] = []
    measures: list[tuple[str, Callable[[], list[Outcome]]]] = [
        ("recurrence", partial(measure_recurrence, size, rounds, device)),
        *(("step", partial(measure_step, size, rounds, device, *step)) for step in steps),
    ]
    for case, measure in measures:
        outcomes = measure()
        results.setdefault(case, []).extend(map(print_outcome, outcomes))
        rows += [row for outcome in outcomes for row in outcome.rows]

    left = TIME_LIMIT - CPU_TRAINING - (time.monotonic() - start)
    seconds = {device.type: max(CPU_TRAINING, min(GPU_TRAINING, left)), "cpu": CPU_TRAINING}
    trained = train_on_each(dict.fromkeys(seconds, QUICK_TRAINING) if options.quick else seconds, options)
    results["training"] = {name: training._asdict() for name, training in trained.items()}
    rows += training_rows(trained)

    table = summary_table(rows, markdown_table)
    summary = f"{machine}\n\n{tests_line(results['tests'])}\n\n{table}\n"
    print(f"\n{table}\n\n{time.monotonic() - start:.0f} seconds")
    results |= {"rows": [row.to_dict() for row in rows], "seconds": time.monotonic() - start}
    if options.output:
        write_results(options.output, results, "eval/check_gpu.py", arguments)
    if options.markdown:
        with written_file(Path(options.markdown)) as file:
            file.write(summary)
    if results["tests"]["failed"]:
        raise ValueError(f"tests failed: {', '.join(results['tests']['failed'])}")


def available_tests() -> tuple[str, ...]:
    """The test files that can be imported here."""
    return TESTS + (FURTHER_TESTS if find_spec("hypothesis") else ())


def run_tests(files: Sequence[str]) -> dict:
    """Runs the tests of some files that need a GPU: how many passed and were skipped, and the names of those that
    failed. Tests that are not done in time count as failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={report}"]
        if find_spec("xdist"):
            command += ["-n", str(min(6, os.cpu_count() or 1))]
        try:
            subprocess.run([*command, *files], cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL, timeout=TEST_LIMIT)
        except subprocess.TimeoutExpired:
            return {"files": list(files), "passed": 0, "skipped": 0, "failed": [f"not done in {TEST_LIMIT} seconds"]}
        if not report.exists():
            raise ValueError(f"pytest did not run: python -m pytest -m gpu {' '.join(files)} shows why")
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    num_skipped = sum(case.find("skipped") is not None for case in cases)
    num_passed = len(cases) - len(failed) - num_skipped
    return {"files": list(files), "passed": num_passed, "skipped": num_skipped, "failed": failed}


def tests_line(tests: dict) -> str:
    """The outcome of the tests in one line."""
    counts = f"{tests['passed']} passed, {tests['skipped']} skipped, {len(tests['failed'])} failed"
    return f"pytest -m gpu {' '.join(tests['files'])}: {counts}"


def write_text(path: Path) -> Path:
    """Writes sentences of Toy English, one a line."""
    sentences = (" ".join(tree_words(tree)) for tree in generate_toy_treebank(NUM_SENTENCES))
    path.write_text("\n".join(sentences), encoding="utf-8")
    return path


def train_on_each(seconds: dict[str, float], options: argparse.Namespace) -> dict[str, Training]:
    """Trains on each device for so many seconds, from the same weights."""
    overrides, trained = [*FIXED_LENGTHS, *(QUICK_OVERRIDES if options.quick else [])], {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(options.text) if options.text else write_text(Path(folder) / "text.txt")
        for name, time_limit in seconds.items():
            run = start_training(TRAINED, text, "bf16", Path(folder) / name, overrides, torch.device(name))
            trained[name] = train_for(run, time_limit)
    return trained


def training_rows(trained: dict[str, Training]) -> list[Row]:
    """Speed of each device, its loss where the slowest one ended, and its last loss (means of some)."""
    case, rows = f"training of {TRAINED}, bf16", []
    common = min(len(training.losses) for training in trained.values())
    for name, training in trained.items():
        rows.append(Row(case, f"{name}, tokens a second", [training.tokens_per_second]))
        for number in sorted({common, len(training.losses)}):
            last = training.losses[number - max(1, common // 10) : number]
            rows.append(Row(case, f"{name}, loss after {number} updates", [statistics.fmean(last)]))
    return rows


if __name__ == "__main__":
    keep_freed_memory()  # as the training scripts do
    sys.exit(main())
