"""Processes that start at once: forks of one that has imported the libraries, which takes seconds of CPU."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def forked_context() -> ForkServerContext:
    """In place of `get_context("spawn")` where a process need not read its environment when it starts."""
    context = multiprocessing.get_context("forkserver")
    # pandas is what PyArrow imports at the first table.
    own = ["onlstm_hf", "onlstm_hf.corpus.run", "training.train_lm", "tests.helpers.first_load"]
    context.set_forkserver_preload([*own, "pandas"])
    # It imports from the folder that it starts in, which may be a test's own copy of the project.
    folder = os.getcwd()
    os.chdir(ROOT)
    try:
        forkserver.ensure_running()
    finally:
        os.chdir(folder)
    return context


def run_ranks(num_processes: int, port: int, function: Callable, *arguments) -> None:
    """Runs a function in processes that find one another as those of `accelerate launch` do; all must succeed."""
    context = forked_context()
    processes = [
        context.Process(target=_run_rank, args=(rank, num_processes, port, function, arguments))
        for rank in range(num_processes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=100)
    for process in processes:
        process.kill()
        process.join()
    assert [process.exitcode for process in processes] == [0] * num_processes


def _run_rank(rank: int, num_processes: int, port: int, function: Callable, arguments: tuple) -> None:
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_processes, "LOCAL_WORLD_SIZE": num_processes}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    os.environ.update({name: str(value) for name, value in (ranks | address).items()})
    function(*arguments)
