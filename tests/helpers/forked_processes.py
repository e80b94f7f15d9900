"""Processes that start fast: forks of a server that has imported the libraries, which takes seconds."""

import faulthandler
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed import TCPStore

ROOT = Path(__file__).resolve().parents[2]


def forked_context() -> ForkServerContext:
    """Replaces `get_context("spawn")` for processes that need not read their environment at the start."""
    context = multiprocessing.get_context("forkserver")
    # PyArrow imports pandas for the first table.
    modules = ["onlstm_hf", "onlstm_hf.corpus.run", "training.train_lm", "tests.helpers.first_load"]
    context.set_forkserver_preload([*modules, "pandas"])
    # The server imports from its working directory, which may be a test's copy of the project.
    folder = os.getcwd()
    os.chdir(ROOT)
    try:
        forkserver.ensure_running()
    finally:
        os.chdir(folder)
    return context


def run_ranks(num_processes: int, function: Callable, *arguments) -> None:
    """Runs a function in distributed processes like those of `accelerate launch`; all must succeed.

    Raises:
        AssertionError: if a process fails or times out; the message has the end of each output.
    """
    context = forked_context()
    # Binds the port at once, as torchrun does; a port that is only chosen may be taken before it is bound.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with TemporaryDirectory() as folder:
        outputs = [Path(folder, f"rank_{rank}.txt") for rank in range(num_processes)]
        processes = [
            context.Process(target=_run_rank, args=(rank, num_processes, store.port, output, function, arguments))
            for rank, output in enumerate(outputs)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout=100)
        for process in processes:
            process.kill()
            process.join()
        codes = [process.exitcode for process in processes]
        ends = "\n".join(f"{output.stem}:\n{output.read_text()[-3000:]}" for output in outputs if output.exists())
    assert codes == [0] * num_processes, f"exit statuses {codes}\n{ends}"


def _run_rank(rank: int, num_processes: int, port: int, output: Path, function: Callable, arguments: tuple) -> None:
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_processes, "LOCAL_WORLD_SIZE": num_processes}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ.update({name: str(value) for name, value in (ranks | address | {"ACCELERATE_USE_CPU": "true"}).items()})
    with output.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        faulthandler.dump_traceback_later(90)  # of one that the others wait for
        function(*arguments)
