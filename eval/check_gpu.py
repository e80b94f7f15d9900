"""Checks the GPU implementations in at most four minutes: tests, speed, and training compared with the CPU.

    python eval/check_gpu.py --output check_gpu.json --markdown check_gpu.md
    python eval/check_gpu.py --device cpu --quick

It needs a checkout, the requirements of the package, Triton and pytest, but no libraries for data or metrics. It runs
`pytest -m gpu`. It times recurrent stacks and whole updates of train_lm.py with `benchmark_speed.py`. It trains the
recipe onlstm_ptb_small on the GPU and on the CPU, on Toy English or on `--text`. The second command tests the script
itself on a machine without a GPU.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval import benchmark_speed
from eval.report.tables import markdown_table
from eval.report.tasks import SPEED
from eval.speed.cases import OVERRIDES, TINY_RECIPE
from eval.speed.measurement import Row
from eval.speed.training import Training, start_training, train_for
from eval.task import run_task, task_parser
from onlstm_hf.utils.files import check_writable, written_file
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.results_file import describe_machine
from training.toy_english import generate_toy_treebank, tree_words

PROJECT_ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/fast/test_onlstm_triton.py", "tests/fast/test_prpn_triton.py")
HYPOTHESIS_TESTS = ("tests/fast/test_onlstm.py", "tests/fast/test_step_graphs.py")
TIMED_RECIPES = ("onlstm_ptb_small", "prpn_ptb_small", "onlstm_ptb")
TRAINED = "onlstm_ptb_small"
# Limits in seconds for the whole script, the tests, training on the GPU, and training on the CPU.
TIME_LIMIT, TEST_LIMIT, GPU_TRAINING, CPU_TRAINING = 235, 110, 120, 20
QUICK_TRAINING = 1
NUM_SENTENCES = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code, which is not 0 if a test failed."""
    failed: list[str] = []

    def task(options: argparse.Namespace) -> dict:
        results = check_gpu(options)
        failed.extend(results["tests"]["failed"])
        return results

    code = run_task("eval/check_gpu.py", build_parser, task, arguments)
    if failed and code == 0:
        print(f"check_gpu.py: tests failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("--markdown", metavar="FILE", help="write the summary as a Markdown table")
    parser.add_argument("--text", metavar="FILE", help="training text instead of Toy English, one sentence per line")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="device to check (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny models for a few seconds, to test the script")
    return parser


def check_gpu(options: argparse.Namespace) -> dict:
    """Runs all checks, prints each result, and returns the results with the names of failed tests."""
    start, device = time.monotonic(), torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("PyTorch finds no CUDA GPU; --device cpu --quick tests the script without one")
    check_writable(options.markdown)
    tests = run_tests(TESTS[1:] if options.quick else available_tests())
    print(tests_line(tests), flush=True)
    results = {"tests": tests, "benchmarks": {}}
    for recipe in TIMED_RECIPES[:1] if options.quick else TIMED_RECIPES:
        command = ["--device", device.type, "--rounds", "2" if options.quick else "3", "--recipe", recipe, "--cases"]
        command += ["step", *(["recurrence"] if recipe == TIMED_RECIPES[0] else [])]
        command += ["--quick"] if options.quick else []
        parsed = benchmark_speed.build_parser().parse_args(command)
        results["benchmarks"][recipe] = benchmark_speed.benchmark_speed(parsed)
    left = TIME_LIMIT - CPU_TRAINING - (time.monotonic() - start)
    seconds = {device.type: max(CPU_TRAINING, min(GPU_TRAINING, left)), "cpu": CPU_TRAINING}
    trained = train_on_each(dict.fromkeys(seconds, QUICK_TRAINING) if options.quick else seconds, options)
    results["training"] = {name: training._asdict() for name, training in trained.items()}
    rows = [row for benchmark in results["benchmarks"].values() for row in benchmark["rows"]]
    rows += [row.to_dict() for row in training_rows(trained)]
    table = markdown_table(
        ["case", "figure", "median (quartiles)"], [[row["case"], row["figure"], row["spread"]] for row in rows]
    )
    print(f"\n{table}\n\n{time.monotonic() - start:.0f} seconds")
    if options.markdown:
        machine = ", ".join(f"{name}: {value}" for name, value in describe_machine(device).items())
        with written_file(Path(options.markdown)) as file:
            file.write(f"{machine}\n\n{tests_line(tests)}\n\n{table}\n")
    return results | {"task": SPEED, "rows": rows, "seconds": time.monotonic() - start}


def available_tests() -> tuple[str, ...]:
    """Returns the test files whose requirements are installed."""
    return TESTS + (HYPOTHESIS_TESTS if find_spec("hypothesis") else ())


def run_tests(files: Sequence[str]) -> dict:
    """Runs the GPU tests of some files. Returns the numbers of passed and skipped tests and the names of failed ones.

    A timeout counts as one failed test.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={report}"]
        if find_spec("xdist"):
            command += ["-n", str(min(6, os.cpu_count() or 1))]
        try:
            subprocess.run([*command, *files], cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL, timeout=TEST_LIMIT)
        except subprocess.TimeoutExpired:
            return {"files": list(files), "passed": 0, "skipped": 0, "failed": [f"timeout after {TEST_LIMIT} seconds"]}
        if not report.exists():
            raise ValueError(f"pytest did not run: python -m pytest -m gpu {' '.join(files)} shows why")
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    num_skipped = sum(case.find("skipped") is not None for case in cases)
    num_passed = len(cases) - len(failed) - num_skipped
    return {"files": list(files), "passed": num_passed, "skipped": num_skipped, "failed": failed}


def tests_line(tests: dict) -> str:
    """Formats the outcome of the tests in one line."""
    counts = f"{tests['passed']} passed, {tests['skipped']} skipped, {len(tests['failed'])} failed"
    return f"pytest -m gpu {' '.join(tests['files'])}: {counts}"


def train_on_each(seconds: dict[str, float], options: argparse.Namespace) -> dict[str, Training]:
    """Trains on each device from the same weights; `seconds` has the time limit by device."""
    overrides, trained = OVERRIDES + (TINY_RECIPE if options.quick else []), {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(options.text or Path(folder) / "text.txt")
        if not options.text:
            sentences = (" ".join(tree_words(tree)) for tree in generate_toy_treebank(NUM_SENTENCES))
            text.write_text("\n".join(sentences), encoding="utf-8")
        for name, time_limit in seconds.items():
            run = start_training(TRAINED, text, "bf16", Path(folder) / name, overrides, torch.device(name))
            trained[name] = train_for(run, time_limit)
    return trained


def training_rows(trained: dict[str, Training]) -> list[Row]:
    """Returns the speed of each device, its loss after the updates of the slowest device, and its last loss.

    A loss is the mean over the last updates, a tenth of the slowest device's number.
    """
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
