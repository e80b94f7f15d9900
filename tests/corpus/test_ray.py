import threading
import time

import pytest

from onlstm_hf.corpus.executors import choose_engine
from tests.helpers.corpus_runs import TASKS, parse, tables
from tests.helpers.requirements import library


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """Two nodes of a CPU each on this machine, and a connection to the first."""
    ray = library("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_the_death_of_a_node_costs_no_row(cluster, corpus, checkpoint, undisturbed, tmp_path):
    engine = choose_engine("ray", None, None, memory=1)
    assert engine.workers == 2
    counts = []
    run = threading.Thread(target=lambda: counts.append(parse(corpus, tmp_path, checkpoint, engine=engine)))
    run.start()
    while run.is_alive() and len(list(tmp_path.glob(".run/completions/*"))) < TASKS / 4:
        time.sleep(0.02)
    assert run.is_alive()
    cluster.remove_node(cluster.list_all_nodes()[1], allow_graceful=False)
    run.join(120)
    assert tables(tmp_path) == undisturbed
    assert sum(counts[0].values()) == sum(map(len, undisturbed.values()))
