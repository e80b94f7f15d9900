"""Executors of datatrove for the tasks of a corpus job."""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.io import DataFolder
from datatrove.pipeline.base import PipelineStep
from tqdm import tqdm

from ..utils.programs import num_cores
from .progress import SECONDS_BETWEEN_UPDATES

START_METHOD = "forkserver"  # see `multiprocessing`


class Engine(NamedTuple):
    """Place and resources of the tasks: `"local"` (processes on this machine), `"ray"` or `"slurm"`.

    At most `workers` tasks run at a time, with `threads` threads each; -1 means no limit (Slurm). With Ray and Slurm
    there is a CPU per thread, with `memory` GB, and each worker has `gpus`. The options `sbatch` of Slurm need
    `time`; those that are `None` are left to the cluster.
    """

    name: str = "local"
    workers: int = 1
    threads: int = 1
    memory: int = 2
    gpus: int = 0
    sbatch: Mapping[str, str | None] | None = None

    def executor(self, pipeline: list[PipelineStep], tasks: int, logging_dir: DataFolder) -> PipelineExecutor:
        """Returns an executor of the pipeline in `tasks` tasks, with its logs in `logging_dir`; see `run_tasks`."""
        options = {"pipeline": pipeline, "tasks": tasks, "workers": self.workers, "logging_dir": logging_dir}
        if self.name == "local":
            return LocalPipelineExecutor(**options)
        options |= {"cpus_per_task": self.threads, "gpus_per_task": self.gpus, "mem_per_cpu_gb": self.memory}
        if self.name == "ray":
            return RayPipelineExecutor(**options)
        activate = Path(sys.prefix, "bin", "activate")
        options |= {"job_name": "onlstm-hf", "venv_path": str(activate) if activate.exists() else None}
        return SlurmExecutor(**options, time=None, partition=None, qos=None, sbatch_args=self.sbatch)


class SlurmExecutor(SlurmPipelineExecutor):
    """Leaves options without a value to the cluster. The base class names them, which `sbatch` refuses."""

    def get_sbatch_args(self, max_array: int = 1) -> dict[str, str]:
        return {name: value for name, value in super().get_sbatch_args(max_array).items() if value is not None}


def choose_engine(name: str, workers: int | None, threads: int | None, **options) -> Engine:
    """Returns an engine whose workers use all CPUs, unless `workers` and `threads` say otherwise.

    Ray connects to the cluster at the environment variable `RAY_ADDRESS`, or to one on this machine. If neither
    exists, it starts a local cluster.

    Raises:
        FileNotFoundError, ImportError: if this machine has no `sbatch`, or Ray is not installed.
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


def run_tasks(executor: PipelineExecutor, ranks: list[int], report: Callable[[], None]) -> None:
    """Runs tasks on this machine or Ray, in workers that load the model once. Calls `report` every half second.

    `LocalPipelineExecutor.run` waits forever for a worker that was killed. `RayPipelineExecutor.run` starts a process
    for each task, and hangs if a node dies while one starts; Ray itself retries tasks whose worker or node died.

    Raises:
        ChildProcessError: after the other tasks if some failed; immediately if a local worker was killed.
    """
    executor.save_executor_as_json()
    place = _ray_cluster if isinstance(executor, RayPipelineExecutor) else _worker_processes
    waiting, running, errors = iter(ranks), {}, {}
    with place(executor) as submit:
        while True:
            running |= {submit(rank): rank for rank in islice(waiting, executor.workers - len(running))}
            if not running:
                break
            for task in wait(running, SECONDS_BETWEEN_UPDATES, FIRST_COMPLETED).done:
                rank, error = running.pop(task), task.exception()
                if isinstance(error, BrokenProcessPool):
                    raise error
                if error is not None:
                    errors[rank] = getattr(error, "cause", error)  # the text of Ray's errors is a traceback
            report()
    if errors:
        rank, error = min(errors.items())
        raise ChildProcessError(f"{len(errors)} of {len(ranks)} tasks failed; task {rank}: {error}") from error


@contextmanager
def _worker_processes(executor: LocalPipelineExecutor) -> Iterator[Callable[[int], Future]]:
    context = multiprocessing.get_context(START_METHOD)
    context.set_forkserver_preload([__name__])
    previous_children = set(multiprocessing.active_children())
    with ProcessPoolExecutor(executor.workers, context, initializer=_begin_worker) as pool:
        try:
            yield lambda rank: pool.submit(executor._run_for_rank, rank, local_rank=1)
        except BrokenProcessPool as error:
            message = "a worker was killed, perhaps for lack of memory; the same command resumes the run"
            raise ChildProcessError(message) from error
        finally:
            # The pool would wait for running tasks after Ctrl-C, and forever for the lock of a worker that was killed.
            for worker in set(multiprocessing.active_children()) - previous_children:
                worker.kill()


@contextmanager
def _ray_cluster(executor: RayPipelineExecutor) -> Iterator[Callable[[int], Future]]:
    import ray

    memory = int(executor.mem_per_cpu_gb * executor.cpus_per_task * 2**30)
    resources = {"num_cpus": executor.cpus_per_task, "num_gpus": executor.gpus_per_task, "memory": memory}
    run_for_rank = ray.remote(**resources, max_retries=10)(PipelineExecutor._run_for_rank)
    shared_executor = ray.put(executor)
    yield lambda rank: run_for_rank.remote(shared_executor, rank, local_rank=1).future()


def _begin_worker() -> None:
    """Ignores Ctrl-C, which the parent handles, and silences standard error; datatrove logs each task to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it is open until the worker ends)
    tqdm.set_lock(threading.RLock())  # the default is a semaphore, which a killed worker would leave behind
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when its parent was killed; it would wait for tasks forever."""
    multiprocessing.parent_process().join()
    os._exit(1)
