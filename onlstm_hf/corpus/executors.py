"""datatrove executors for the tasks of a corpus job."""

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

# Number of times Ray retries a task whose worker or node died.
MAX_RETRIES = 10


class Engine(NamedTuple):
    """Place and resources of the tasks.

    Attributes:
        name: `"local"` (processes on this machine), `"ray"` or `"slurm"`.
        workers: maximum number of concurrent tasks; -1 means no limit (Slurm).
        threads: threads per worker; with Ray and Slurm also CPUs per worker.
        memory: GB per CPU, with Ray and Slurm.
        gpus: GPUs per worker, with Ray and Slurm.
        sbatch: names and values of `sbatch` options. Slurm needs `partition` and `time`.
        start_method: start method of local processes, see `multiprocessing`.
    """

    name: str = "local"
    workers: int = 1
    threads: int = 1
    memory: int = 2
    gpus: int = 0
    sbatch: tuple[tuple[str, str], ...] = ()
    start_method: str = "forkserver"

    def executor(self, pipeline: list[PipelineStep], tasks: int, logging_dir: DataFolder) -> PipelineExecutor:
        """Returns an executor that runs the pipeline in `tasks` tasks and keeps its logs in `logging_dir`."""
        common = {"pipeline": pipeline, "tasks": tasks, "workers": self.workers, "logging_dir": logging_dir}
        if self.name == "local":
            return WorkerPoolExecutor(**common, start_method=self.start_method)
        common |= {"cpus_per_task": self.threads, "gpus_per_task": self.gpus, "mem_per_cpu_gb": self.memory}
        if self.name == "ray":
            return RayTasksExecutor(**common)
        options = dict(self.sbatch)
        own_arguments = {name: options.pop(name, None) for name in ("time", "partition", "qos")}
        activate = Path(sys.prefix, "bin", "activate")
        common |= {"job_name": "onlstm-hf", "venv_path": str(activate) if activate.exists() else None}
        return SlurmPipelineExecutor(**common, **own_arguments, sbatch_args=options)


def choose_engine(name: str, workers: int | None, threads: int | None, **options) -> Engine:
    """Returns an engine whose workers use all CPUs, unless `workers` and `threads` say otherwise.

    Ray connects to the cluster at the environment variable `RAY_ADDRESS`, or to one on this machine. If neither
    exists, it starts a local cluster.

    Raises:
        FileNotFoundError: if Slurm is requested and this machine has no `sbatch`.
        ImportError: if Ray is requested and not installed.
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
        raise FileNotFoundError("this machine has no sbatch: run the command on a machine that submits Slurm jobs")
    return Engine(name, workers or -1, threads or 1, **options)


class WorkerPoolExecutor(LocalPipelineExecutor):
    """`LocalPipelineExecutor` that survives killed workers; each worker loads the model once for all its tasks.

    datatrove's executor hangs if a worker dies and stops at the first error. This one reports the dead worker and
    finishes the other tasks after an error.
    """

    def run(self) -> None:
        """Runs the incomplete tasks.

        Raises:
            ChildProcessError: after the other tasks if some failed; immediately if a worker was killed.
        """
        ranks = self.get_incomplete_ranks()
        if not ranks:
            return
        self.save_executor_as_json()
        context = multiprocessing.get_context(self.start_method)
        if self.start_method == "forkserver":
            context.set_forkserver_preload(["onlstm_hf.registration", __name__])
        previous_children = set(multiprocessing.active_children())
        with ProcessPoolExecutor(min(self.workers, len(ranks)), context, initializer=_begin_worker) as pool:
            try:
                _run_tasks(lambda rank: pool.submit(self._run_for_rank, rank, local_rank=1), ranks, self.workers)
            except BrokenProcessPool as error:
                raise ChildProcessError(
                    "a worker was killed, perhaps for lack of memory; the same command resumes the run"
                ) from error
            finally:
                # The pool would hang on its idle workers if one was killed while it held the lock of their queue.
                for worker in set(multiprocessing.active_children()) - previous_children:
                    worker.kill()


class RayTasksExecutor(RayPipelineExecutor):
    """`RayPipelineExecutor` with plain Ray tasks; each worker loads the model once for all its tasks.

    datatrove's executor starts an actor per task, which imports and loads everything again. It hangs if a node dies
    while an actor starts. Ray itself retries tasks whose worker or node died.
    """

    def run(self) -> None:
        """Runs the incomplete tasks.

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
        run_rank = ray.remote(**resources, max_retries=MAX_RETRIES)(_run_rank)
        executor = ray.put(self)
        _run_tasks(lambda rank: run_rank.remote(executor, rank).future(), ranks, self.workers)


def _run_tasks(submit: Callable[[int], Future], ranks: list[int], workers: int) -> None:
    """Runs at most `workers` tasks at a time; raises a `ChildProcessError` at the end if some failed."""
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
                errors[rank] = getattr(error, "cause", error)  # the text of Ray's errors is a traceback
    if errors:
        rank, error = min(errors.items())
        raise ChildProcessError(f"{len(errors)} of {len(ranks)} tasks failed; task {rank}: {error}") from error


def _run_rank(executor: PipelineExecutor, rank: int) -> None:
    executor._run_for_rank(rank, local_rank=1)


def _begin_worker() -> None:
    """Ignores Ctrl-C, which the parent handles, and silences standard error; datatrove logs each task to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it is open until the worker ends)
    # Forked processes share tqdm's lock: if one were killed while it holds the lock, the others would hang.
    tqdm.set_lock(threading.RLock())
    logger.enable("datatrove")  # The command disables this logger. Forked workers inherit that.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when its parent was killed; it would wait for tasks forever."""
    multiprocessing.parent_process().join()
    os._exit(1)
