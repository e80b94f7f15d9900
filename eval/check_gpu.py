"""Checks the GPU implementations in a few minutes: tests, speed, and losses of training.

    python eval/check_gpu.py --output check_gpu.json --markdown check_gpu.md
    python eval/check_gpu.py --device cpu --quick

It needs a checkout, the requirements of the package, Triton and pytest, but no libraries for data or metrics. It runs
`pytest -m gpu`. With `benchmark_speed.py` it times recurrent stacks and whole updates of train_lm.py, and compares the
losses of training on Toy English by all paths. The second command tests the script itself on a machine without a GPU.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval import benchmark_speed
from eval.report.tables import markdown_table
from eval.report.tasks import SPEED
from eval.task import run_task, task_parser
from onlstm_hf.utils.files import check_writable, written_file
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.results_file import describe_machine
from training.toy_english import generate_toy_treebank, tree_words

PROJECT_ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/fast/test_onlstm_triton.py", "tests/fast/test_prpn_triton.py")
HYPOTHESIS_TESTS = ("tests/fast/test_onlstm.py", "tests/fast/test_step_graphs.py")
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
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="device to check (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny models for a few seconds, to test the script")
    return parser


def check_gpu(options: argparse.Namespace) -> dict:
    """Runs all checks, prints each result, and returns the results with the names of failed tests."""
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("PyTorch finds no CUDA GPU; --device cpu --quick tests the script without one")
    check_writable(options.markdown)
    files = TESTS + (HYPOTHESIS_TESTS if find_spec("hypothesis") else ())
    tests = run_tests(TESTS[1:] if options.quick else files)
    tests_line = f"pytest -m gpu {' '.join(tests['files'])}: {tests['summary']}"
    print(tests_line, flush=True)
    results = {"task": SPEED, "tests": tests, "benchmarks": {}, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        sentences = (" ".join(tree_words(tree)) for tree in generate_toy_treebank(NUM_SENTENCES))
        text.write_text("\n".join(sentences), encoding="utf-8")
        # Arguments of the benchmark by recipe.
        cases = {"onlstm_ptb_small": ["step", "recurrence", "--loss-curves", str(text)]}
        if not options.quick:
            cases |= {"prpn_ptb_small": ["step"], "onlstm_ptb": ["step"]}
        for recipe, arguments in cases.items():
            command = ["--device", device.type, "--rounds", "2" if options.quick else "3", "--recipe", recipe]
            command += [*(["--quick"] if options.quick else []), "--cases", *arguments]
            parsed = benchmark_speed.build_parser().parse_args(command)
            results["benchmarks"][recipe] = benchmark_speed.benchmark_speed(parsed)
            results["rows"] += results["benchmarks"][recipe]["rows"]
    table = benchmark_speed.summary_table(results["rows"], markdown_table)
    print(f"\n{table}")
    if options.markdown:
        machine = ", ".join(f"{name}: {value}" for name, value in describe_machine(device).items())
        with written_file(Path(options.markdown)) as file:
            file.write(f"{machine}\n\n{tests_line}\n\n{table}\n")
    return results


def run_tests(files: Sequence[str]) -> dict:
    """Runs the GPU tests of some files, and returns the last line of pytest and the lines of failed tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *files]
    if find_spec("xdist"):
        command += ["-n", str(min(6, os.cpu_count() or 1))]
    run = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True)
    lines = run.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if run.returncode != 0 and not failed:
        raise ValueError(f"pytest did not run: python -m pytest -m gpu {' '.join(files)} shows why")
    return {"files": list(files), "summary": lines[-1], "failed": failed}


if __name__ == "__main__":
    keep_freed_memory()  # as the training scripts do
    sys.exit(main())
