"""Executors of datatrove that run the tasks of a corpus."""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.io import DataFolder
from datatrove.pipeline.base import PipelineStep
from loguru import logger
from tqdm import tqdm

from ..utils.programs import num_cores

# Ray runs a task so often again whose worker or node is gone.
TRIES_OF_A_TASK = 10


class Engine(NamedTuple):
    """Place and resources of the tasks.

    Attributes:
        name: `"local"` (processes of this machine), `"ray"` or `"slurm"`.
        workers: tasks at a time; -1 for as many as Slurm gives.
        threads: of a worker; with Ray and Slurm also its CPUs.
        memory: of a CPU in GB, with Ray and Slurm.
        gpus: of a worker, with Ray and Slurm.
        sbatch: options of `sbatch` by their names, of which Slurm needs `partition` and `time`.
        start_method: how Python starts the processes of this machine.
    """

    name: str = "local"
    workers: int = 1
    threads: int = 1
    memory: int = 2
    gpus: int = 0
    sbatch: tuple[tuple[str, str], ...] = ()
    start_method: str = "forkserver"

    def executor(self, pipeline: list[PipelineStep], tasks: int, logging_dir: DataFolder) -> PipelineExecutor:
        """Returns the executor that runs these steps in `tasks` tasks and keeps its records in `logging_dir`."""
        common = {"pipeline": pipeline, "tasks": tasks, "workers": self.workers, "logging_dir": logging_dir}
        if self.name == "local":
            return WorkerPoolExecutor(**common, start_method=self.start_method)
        common |= {"cpus_per_task": self.threads, "gpus_per_task": self.gpus, "mem_per_cpu_gb": self.memory}
        if self.name == "ray":
            return RayTasksExecutor(**common)
        options = dict(self.sbatch)
        named = {name: options.pop(name, None) for name in ("time", "partition", "qos")}
        activate = Path(sys.prefix, "bin", "activate")
        venv_path = str(activate) if activate.exists() else None
        return SlurmPipelineExecutor(**common, **named, job_name="onlstm-hf", venv_path=venv_path, sbatch_args=options)


def choose_engine(name: str, workers: int | None, threads: int | None, **options) -> Engine:
    """An engine with workers for all CPUs there are, and threads for all CPUs of a worker, where they are not given.

    With Ray this connects to the cluster that the environment variable `RAY_ADDRESS` names, or that runs on this
    machine, and otherwise starts one of this machine.

    Raises:
        FileNotFoundError: if Slurm is needed and this machine has no `sbatch`.
        ImportError: if Ray is needed and not installed.
    """
    if name == "local":
        workers = workers or num_cores()
        threads = threads or max(1, num_cores() // workers)
    elif name == "ray":
        import ray

        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        workers = workers or max(1, int(ray.cluster_resources()["CPU"]) // (threads or 1))
    elif shutil.which("sbatch") is None:
        raise FileNotFoundError("this machine has no sbatch: run the command where jobs of Slurm are submitted")
    return Engine(name, workers or -1, threads or 1, **options)


class WorkerPoolExecutor(LocalPipelineExecutor):
    """`LocalPipelineExecutor` with workers that may be killed, and that keep a model for all of their tasks.

    datatrove's waits for ever for the result of a worker that is gone, and ends all workers at the first error. This
    one tells of the worker, and completes the tasks that have no error.
    """

    def run(self) -> None:
        """Runs the tasks that are not complete.

        Raises:
            ChildProcessError: after the other tasks, if some failed; at once, if a worker was killed.
        """
        ranks = self.get_incomplete_ranks()
        if not ranks:
            return
        self.save_executor_as_json()
        context = multiprocessing.get_context(self.start_method)
        if self.start_method == "forkserver":
            context.set_forkserver_preload(["onlstm_hf.registration", __name__])
        others = set(multiprocessing.active_children())
        with ProcessPoolExecutor(min(self.workers, len(ranks)), context, initializer=_begin_worker) as pool:
            try:
                _run_tasks(lambda rank: pool.submit(self._run_for_rank, rank, local_rank=1), ranks, self.workers)
            except BrokenProcessPool as error:
                raise ChildProcessError(
                    "a worker was killed, perhaps for lack of memory; the same command resumes the run"
                ) from error
            finally:
                # The pool would wait for ever for its idle workers if one of them were killed with their queue's lock.
                for worker in set(multiprocessing.active_children()) - others:
                    worker.kill()


class RayTasksExecutor(RayPipelineExecutor):
    """`RayPipelineExecutor` with plain tasks of Ray, whose workers keep a model for all of their tasks.

    datatrove's makes an actor a task, which imports everything and loads the model again, and it waits for ever where
    a node dies while an actor starts. Ray itself runs a task again whose worker or node is gone.
    """

    def run(self) -> None:
        """Runs the tasks that are not complete.

        Raises:
            ChildProcessError: after the other tasks, if some failed.
        """
        import ray

        ranks = self.get_incomplete_ranks()
        if not ranks:
            return
        self.save_executor_as_json()
        memory = int(self.mem_per_cpu_gb * self.cpus_per_task * 2**30)
        resources = {"num_cpus": self.cpus_per_task, "num_gpus": self.gpus_per_task, "memory": memory}
        run_rank = ray.remote(**resources, max_retries=TRIES_OF_A_TASK)(_run_rank)
        executor = ray.put(self)
        _run_tasks(lambda rank: run_rank.remote(executor, rank).future(), ranks, self.workers)


def _run_tasks(submit: Callable[[int], Future], ranks: list[int], workers: int) -> None:
    """Runs tasks, `workers` at a time; raises a `ChildProcessError` at the end if some failed."""
    waiting, running, errors = iter(ranks), {}, {}
    while True:
        running |= {submit(rank): rank for rank in islice(waiting, workers - len(running))}
        if not running:
            break
        for task in wait(running, return_when=FIRST_COMPLETED).done:
            rank, error = running.pop(task), task.exception()
            if isinstance(error, BrokenProcessPool):
                raise error
            if error is not None:
                errors[rank] = getattr(error, "cause", error)  # Ray's errors have the traceback as their text
    if errors:
        rank, error = min(errors.items())
        raise ChildProcessError(f"{len(errors)} of {len(ranks)} tasks failed; task {rank}: {error}") from error


def _run_rank(executor: PipelineExecutor, rank: int) -> None:
    executor._run_for_rank(rank, local_rank=1)


def _begin_worker() -> None:
    """Leaves Ctrl-C and the terminal to the process that has the workers; datatrove writes a log of each task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it is open until the worker ends)
    # A forked process shares the lock of progress bars, and all would wait for ever for one that is killed with it.
    tqdm.set_lock(threading.RLock())
    logger.enable("datatrove")  # which the command disables in its own process, and a forked one has from there
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when the process that has it was killed: a worker would wait for tasks for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)
