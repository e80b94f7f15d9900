"""The GPU check, run on a CPU."""

import json
import os
import statistics
import subprocess
import sys

import pytest
import torch

from eval import check_gpu

QUICK = ["--device", "cpu", "--quick"]
# Libraries that a machine with a GPU may lack.
WITHOUT = """
from importlib.machinery import PathFinder

MISSING = ("datasets", "evaluate", "nltk", "hypothesis", "matplotlib")
find = PathFinder.find_spec

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, *others):
        return None if name.partition(".")[0] in MISSING else find(name, *others)

PathFinder.find_spec = Finder.find_spec
"""
GPU_TESTS = """
import pytest

@pytest.mark.gpu
def test_that_passes():
    pass

@pytest.mark.gpu
def test_that_fails():
    assert False

@pytest.mark.gpu
def test_that_is_skipped():
    pytest.skip("not here")

def test_for_a_cpu():
    assert False
"""


def test_without_a_gpu_there_is_a_one_line_error(refusal, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA GPU" in refusal(check_gpu)


@pytest.mark.slow
def test_output_files_name_failed_tests(capsys, tmp_path, monkeypatch):
    tests = {"files": ["tests/some.py"], "summary": "1 failed", "failed": ["FAILED test_that_fails"]}
    monkeypatch.setattr(check_gpu, "run_tests", lambda files: tests)
    files = ["--output", str(tmp_path / "check.json"), "--markdown", str(tmp_path / "check.md")]
    assert check_gpu.main([*QUICK, *files]) == 1
    assert "test_that_fails" in capsys.readouterr().err
    results = json.loads((tmp_path / "check.json").read_text())
    assert results["tests"] == tests
    training = results["training"]["cpu"]
    assert training["tokens_per_second"] > 0
    assert statistics.fmean(training["losses"][-10:]) < training["losses"][0]
    lines = (tmp_path / "check.md").read_text().splitlines()
    assert f"cpu: {results['machine']['cpu']}" in lines[0]
    assert [line.split(" | ")[-1] for line in lines[6:]] == [f"{row['spread']} |" for row in results["rows"]]


@pytest.mark.slow
def test_tests_are_counted_and_failed_ones_are_named(tmp_path):
    path = tmp_path / "test_of_gpu.py"
    path.write_text(GPU_TESTS)
    found = check_gpu.run_tests([str(path)])
    assert found["summary"].startswith("1 failed, 1 passed, 1 skipped")
    assert len(found["failed"]) == 1 and "test_that_fails" in found["failed"][0]
    with pytest.raises(ValueError, match="pytest did not run"):
        check_gpu.run_tests([str(tmp_path / "missing.py")])


def test_losses_are_compared_after_the_updates_of_the_slower_device():
    trained = {
        "cuda": {"losses": [5.0, 4.0, 3.0, 2.0], "tokens_per_second": 10.0},
        "cpu": {"losses": [5.5, 4.5], "tokens_per_second": 1.0},
    }
    figures = {row["figure"]: row["rounds"][0] for row in check_gpu.training_rows(trained)}
    assert figures == {
        "cuda, tokens a second": 10.0,
        "cuda, loss after 2 updates": 4.0,
        "cuda, loss after 4 updates": 2.0,
        "cpu, tokens a second": 1.0,
        "cpu, loss after 2 updates": 4.5,
    }


@pytest.mark.slow
def test_it_runs_without_libraries_for_data_and_metrics(tmp_path, project_root):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(project_root)])}
    environment["PYTEST_ADDOPTS"] = "-p no:hypothesispytest"  # the plugin of the library that is hidden
    command = [sys.executable, "eval/check_gpu.py", *QUICK]
    run = subprocess.run(command, cwd=project_root, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "tokens a second" in run.stdout
