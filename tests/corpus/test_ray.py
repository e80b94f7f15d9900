import subprocess
import sys
import time

import pytest

from tests.helpers.corpus_runs import TASKS, tables
from tests.helpers.loopback import ADDRESS, kill_all, start_process
from tests.helpers.requirements import library

library("ray")

# Runs in a separate process, like on a host of the cluster. It imports its modules while the nodes start.
PROGRAM = """
import sys
import time
from pathlib import Path
from onlstm_hf.corpus.executors import choose_engine
from tests.helpers.corpus_runs import parse

corpus, output, checkpoint, nodes_are_there = sys.argv[1:]
while not Path(nodes_are_there).exists():
    time.sleep(0.02)
engine = choose_engine("ray", None, None, memory=1)
assert engine.workers == 2
print(sum(parse(Path(corpus), Path(output), checkpoint, engine=engine).values()))
"""
PORT = 6399
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # the nodes share no key, which Ray would require
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "120",  # seconds that the second node waits for the first
    # By default Ray takes 15 seconds to detect a dead node.
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "2",
}
# Without the autoscaler and the dashboard, which start slowly and are not needed.
HEAD = ["--head", f"--port={PORT}", "--no-monitor", "--include-dashboard=false"]


@pytest.fixture
def nodes(tmp_path):
    """Two starting Ray nodes with one CPU each."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--block"]
    command.append("--include-log-monitor=false")
    started = []
    try:
        for number, place in enumerate((HEAD, [f"--address={ADDRESS}:{PORT}"])):
            node_command = [*command, *place, f"--node-ip-address={ADDRESS}"]
            started.append(start_process(node_command, str(tmp_path / f"node_{number}.txt"), ENVIRONMENT))
        yield started
    finally:
        for node in started:
            if node.poll() is None:
                kill_all(node)


def wait_for(nodes, folder):
    for number, node in enumerate(nodes):
        printed = folder / f"node_{number}.txt"
        while "Ray runtime started" not in printed.read_text():
            assert node.poll() is None, printed.read_text()
            time.sleep(0.02)


@pytest.mark.slow
def test_no_row_is_lost_when_a_node_dies(nodes, corpus, checkpoint, undisturbed, tmp_path, project_root):
    output, printed, nodes_are_there = tmp_path / "output", tmp_path / "run.txt", tmp_path / "nodes_are_there"
    command = [sys.executable, "-c", PROGRAM, str(corpus), str(output), checkpoint, str(nodes_are_there)]
    environment = {**ENVIRONMENT, "RAY_ADDRESS": f"{ADDRESS}:{PORT}", "PYTHONPATH": str(project_root)}
    run = start_process(command, str(printed), environment)
    try:
        wait_for(nodes, tmp_path)
        nodes_are_there.touch()
        while run.poll() is None and len(list(output.glob(".run/completions/*"))) < TASKS / 4:
            time.sleep(0.02)
        assert run.poll() is None, printed.read_text()
        kill_all(nodes[1])
        assert run.wait(300) == 0, printed.read_text()
    except (AssertionError, subprocess.TimeoutExpired):
        if run.poll() is None:
            kill_all(run)
        raise
    assert tables(output) == undisturbed
    assert str(sum(map(len, undisturbed.values()))) in printed.read_text().splitlines()
