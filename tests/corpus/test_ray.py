import subprocess
import sys
import time

import pytest

from tests.helpers.corpus_runs import TASKS, tables
from tests.helpers.requirements import library
from tests.helpers.two_hosts import kill_all, loopback_hosts, namespace_hosts

library("ray")

# In a process of its own, as it must be on one of the hosts.
PROGRAM = """
import sys
from pathlib import Path
from onlstm_hf.corpus.executors import choose_engine
from tests.helpers.corpus_runs import parse

corpus, output, checkpoint = sys.argv[1:]
engine = choose_engine("ray", None, None, memory=1)
assert engine.workers == 2
print(sum(parse(Path(corpus), Path(output), checkpoint, engine=engine).values()))
"""
PORT = 6399
# The nodes are of one user, but have no key in common that Ray would ask for.
ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def hosts():
    """Two hosts with a network of their own; where that is not permitted, this machine twice."""
    try:
        with namespace_hosts() as hosts:
            yield hosts
    except PermissionError:
        yield loopback_hosts()


@pytest.fixture
def nodes(hosts, tmp_path):
    """A node of Ray with one CPU on each of the hosts."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--block"]
    places = (["--head", f"--port={PORT}", "--include-dashboard=false"], [f"--address={hosts[0].address}:{PORT}"])
    started = []
    try:
        for number, (host, place) in enumerate(zip(hosts, places, strict=True)):
            printed = tmp_path / f"node_{number}.txt"
            own = f"--node-ip-address={host.address}"
            started.append(host.start([*command, *place, own], str(printed), ENVIRONMENT))
            while "Ray runtime started" not in printed.read_text():
                assert started[-1].poll() is None, printed.read_text()
                time.sleep(0.1)
        yield started
    finally:
        for node in started:
            if node.poll() is None:
                kill_all(node)


@pytest.mark.slow
def test_the_death_of_a_node_costs_no_row(hosts, nodes, corpus, checkpoint, undisturbed, tmp_path, project_root):
    output = tmp_path / "output"
    command = [sys.executable, "-c", PROGRAM, str(corpus), str(output), checkpoint]
    environment = {**ENVIRONMENT, "RAY_ADDRESS": f"{hosts[0].address}:{PORT}", "PYTHONPATH": str(project_root)}
    run = hosts[0].start(command, str(tmp_path / "run.txt"), environment)
    try:
        while run.poll() is None and len(list(output.glob(".run/completions/*"))) < TASKS / 4:
            time.sleep(0.02)
        assert run.poll() is None, (tmp_path / "run.txt").read_text()
        kill_all(nodes[1])
        assert run.wait(300) == 0, (tmp_path / "run.txt").read_text()
    except (AssertionError, subprocess.TimeoutExpired):
        if run.poll() is None:
            kill_all(run)
        raise
    assert tables(output) == undisturbed
    assert int((tmp_path / "run.txt").read_text().split()[-1]) == sum(map(len, undisturbed.values()))
