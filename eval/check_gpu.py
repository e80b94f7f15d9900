"""Checks the GPU implementations in at most four minutes: tests, speed, and training compared with the CPU.

    python eval/check_gpu.py --output check_gpu.json --markdown check_gpu.md
    python eval/check_gpu.py --device cpu --quick

It needs a checkout, the requirements of the package, Triton and pytest, but no libraries for data or metrics. It runs
`pytest -m gpu`, times recurrent stacks and whole updates of train_lm.py with `benchmark_speed.py`, and trains a recipe
on Toy English on the GPU and on the CPU. The second command tests the script itself on a machine without a GPU.
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

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval import benchmark_speed
from eval.report.tables import markdown_table
from eval.report.tasks import SPEED
from eval.speed.cases import OVERRIDES, TINY_RECIPE, start_training, updates
from eval.speed.measurement import row
from eval.task import run_task, task_parser
from onlstm_hf.utils.files import check_writable, written_file
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.results_file import describe_machine
from training.toy_english import generate_toy_treebank, tree_words

PROJECT_ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/fast/test_onlstm_triton.py", "tests/fast/test_prpn_triton.py")
HYPOTHESIS_TESTS = ("tests/fast/test_onlstm.py", "tests/fast/test_step_graphs.py")
RECIPES = ("onlstm_ptb_small", "prpn_ptb_small", "onlstm_ptb")  # the first is also trained
# Limits in seconds for the whole script, the tests, training on the GPU, and training on the CPU.
TIME_LIMIT, TEST_LIMIT, GPU_TRAINING, CPU_TRAINING = 235, 110, 120, 20
NUM_SENTENCES, NUM_WARM_UP = 20_000, 10


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
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="device to check (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny models for a few seconds, to test the script")
    return parser


def check_gpu(options: argparse.Namespace) -> dict:
    """Runs all checks, prints each result, and returns the results with the names of failed tests."""
    start, device = time.monotonic(), torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("PyTorch finds no CUDA GPU; --device cpu --quick tests the script without one")
    check_writable(options.markdown)
    files = TESTS + (HYPOTHESIS_TESTS if find_spec("hypothesis") else ())
    tests = run_tests(TESTS[1:] if options.quick else files)
    tests_line = f"pytest -m gpu {' '.join(tests['files'])}: {tests['summary']}"
    print(tests_line, flush=True)
    results = {"task": SPEED, "tests": tests, "benchmarks": {}, "training": {}, "rows": []}
    for recipe in RECIPES[:1] if options.quick else RECIPES:
        command = ["--device", device.type, "--rounds", "2" if options.quick else "3", "--recipe", recipe]
        command += ["--quick"] if options.quick else []
        command += ["--cases", "step", *(["recurrence"] if recipe == RECIPES[0] else [])]
        parsed = benchmark_speed.build_parser().parse_args(command)
        results["benchmarks"][recipe] = benchmark_speed.benchmark_speed(parsed)
        results["rows"] += results["benchmarks"][recipe]["rows"]
    left = TIME_LIMIT - CPU_TRAINING - (time.monotonic() - start)
    limits = {device.type: max(CPU_TRAINING, min(GPU_TRAINING, left)), "cpu": CPU_TRAINING}
    for name, seconds in limits.items():
        results["training"][name] = train_for(1 if options.quick else seconds, torch.device(name), options.quick)
    results["rows"] += training_rows(results["training"])
    table = benchmark_speed.summary_table(results["rows"], markdown_table)
    print(f"\n{table}")
    if options.markdown:
        machine = ", ".join(f"{name}: {value}" for name, value in describe_machine(device).items())
        with written_file(Path(options.markdown)) as file:
            file.write(f"{machine}\n\n{tests_line}\n\n{table}\n")
    return results


def run_tests(files: Sequence[str]) -> dict:
    """Runs GPU tests; returns the last line of pytest and the lines of failed tests. A timeout is a failed test."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *files]
    if find_spec("xdist"):
        command += ["-n", str(min(6, os.cpu_count() or 1))]
    try:
        run = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=TEST_LIMIT)
    except subprocess.TimeoutExpired:
        timeout = f"timeout after {TEST_LIMIT} seconds"
        return {"files": list(files), "summary": timeout, "failed": [timeout]}
    lines = run.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if run.returncode != 0 and not failed:
        raise ValueError(f"pytest did not run: python -m pytest -m gpu {' '.join(files)} shows why")
    return {"files": list(files), "summary": lines[-1], "failed": failed}


def train_for(seconds: float, device: torch.device, quick: bool) -> dict:
    """Trains on Toy English; returns the losses of all updates in nats, and the speed after the warm-up."""
    overrides, losses, counted = OVERRIDES + (TINY_RECIPE if quick else []), [], 0
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        sentences = (" ".join(tree_words(tree)) for tree in generate_toy_treebank(NUM_SENTENCES))
        text.write_text("\n".join(sentences), encoding="utf-8")
        run = start_training(RECIPES[0], text, "bf16", Path(folder, "run"), overrides, device)
        begin = time.perf_counter()
        for num_tokens, loss in updates(run):
            losses.append(loss)
            counted += num_tokens
            if len(losses) % NUM_WARM_UP == 0:
                if device.type == "cuda":
                    torch.cuda.synchronize(device)  # kernels run asynchronously
                now = time.perf_counter()
                if len(losses) == NUM_WARM_UP:  # it compiles kernels and records graphs
                    start, counted = now, 0
                elif now - begin >= seconds:
                    return {"losses": [one.item() for one in losses], "tokens_per_second": counted / (now - start)}


def training_rows(trained: dict[str, dict]) -> list[dict]:
    """Returns each device's speed, and its mean losses before the slowest device's last update and before its own."""
    case, rows = f"training of {RECIPES[0]}, bf16", []
    common = min(len(training["losses"]) for training in trained.values())
    for name, training in trained.items():
        rows.append(row(case, f"{name}, tokens a second", [training["tokens_per_second"]]))
        for number in sorted({common, len(training["losses"])}):
            last = training["losses"][number - max(1, common // 10) : number]
            rows.append(row(case, f"{name}, loss after {number} updates", [statistics.fmean(last)]))
    return rows


if __name__ == "__main__":
    keep_freed_memory()  # as the training scripts do
    sys.exit(main())
