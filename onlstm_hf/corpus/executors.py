"""Where the tasks of a corpus run: executors of datatrove."""

import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.io import DataFolder
from datatrove.pipeline.base import PipelineStep


class Engine(NamedTuple):
    """Where the tasks run, and with how much.

    Attributes:
        name: `"local"` (processes of this machine), `"ray"` or `"slurm"`.
        workers: tasks at a time; -1 for as many as Slurm gives.
        threads: of a worker; with Ray and Slurm also its CPUs.
        memory: of a CPU in GB, with Ray and Slurm.
        sbatch: options of `sbatch` by their names, of which Slurm needs `partition` and `time`.
    """

    name: str = "local"
    workers: int = 1
    threads: int = 1
    memory: int = 2
    sbatch: tuple[tuple[str, str], ...] = ()

    def executor(self, pipeline: list[PipelineStep], tasks: int, logging_dir: DataFolder) -> PipelineExecutor:
        """The executor that runs these steps in so many tasks and keeps its records in that folder."""
        common = {"pipeline": pipeline, "tasks": tasks, "workers": self.workers, "logging_dir": logging_dir}
        if self.name == "local":
            return WorkerPoolExecutor(**common)
        common |= {"cpus_per_task": self.threads, "mem_per_cpu_gb": self.memory}
        if self.name == "ray":
            return RayPipelineExecutor(**common)
        options = dict(self.sbatch)
        activate = Path(sys.prefix, "bin", "activate")
        return SlurmPipelineExecutor(
            **common,
            time=options.pop("time"),
            partition=options.pop("partition"),
            qos=options.pop("qos", None),
            job_name="onlstm-hf",
            venv_path=str(activate) if activate.exists() else None,
            sbatch_args=options,
        )


def choose_engine(name: str, workers: int | None, threads: int | None, **options) -> Engine:
    """An engine with workers for all CPUs there are, and threads for all CPUs of a worker, where they are not given.

    With Ray this connects to the cluster that the environment variable `RAY_ADDRESS` names, or that runs on this
    machine, and otherwise starts one of this machine.

    Raises:
        ImportError: if Ray is needed and not installed.
    """
    if name == "local":
        workers = workers or num_cores()
        return Engine(name, workers, threads or max(1, num_cores() // workers), **options)
    threads = threads or 1
    if name == "slurm":
        return Engine(name, workers or -1, threads, **options)
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    return Engine(name, workers or max(1, int(ray.cluster_resources()["CPU"]) // threads), threads, **options)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPoolExecutor(LocalPipelineExecutor):
    """`LocalPipelineExecutor` with workers that may be killed, and that load a model once.

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
        pool = ProcessPoolExecutor(min(self.workers, len(ranks)), context, initializer=_begin_worker)
        try:
            tasks = {pool.submit(self._run_for_rank, rank, local_rank=1): rank for rank in ranks}
            errors = {tasks[task]: error for task in as_completed(tasks) if (error := task.exception())}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            raise
        pool.shutdown()
        if any(isinstance(error, BrokenProcessPool) for error in errors.values()):
            raise ChildProcessError("a worker was killed, perhaps for lack of memory; the same command goes on")
        if errors:
            rank, error = min(errors.items())
            raise ChildProcessError(f"{len(errors)} of {len(ranks)} tasks failed; task {rank}: {error}") from error


def _begin_worker() -> None:
    """Leaves Ctrl-C and the terminal to the process that has the workers; datatrove writes a log of each task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it is open until the worker ends)
