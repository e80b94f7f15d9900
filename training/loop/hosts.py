"""A run on several hosts: the first one keeps its files, all train in step, and none waits for one that has died."""

import os
import platform
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch.distributed import DistError, TCPStore

from training.loop.task import TrainingBatch

# Seconds between two signs of life of a host, and without one until it is given up.
BETWEEN_SIGNS, LONGEST_SILENCE = 5.0, 40.0
# Processes agree once for so many batches on how many of them all have.
BATCHES_AT_ONCE = 64
# What gloo raises where a connection breaks is a plain RuntimeError that names its source file.
GLOO_ERROR = re.compile(r"gloo/(transport|rendezvous)|gloo/.*(closed|timed out|reset)", re.IGNORECASE)


class ConnectionLost(RuntimeError):
    """Another process of the run is gone, and training cannot go on without it."""


def is_lost_connection(error: BaseException) -> bool:
    """Whether an error is that of processes which no longer reach one another."""
    return isinstance(error, ConnectionLost | DistError) or (
        isinstance(error, RuntimeError) and GLOO_ERROR.search(str(error)) is not None
    )


@contextmanager
def reported_loss_of_connection(way_on: str) -> Iterator[None]:
    """Turns what the libraries raise where another process died into a `ConnectionLost` that says how to go on."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        # gloo begins with the place in its source, and ends with advice to its own developers.
        reason = re.sub(r"^\[\S+\] ", "", " ".join(str(error).split())).partition(". ")[0]
        raise ConnectionLost(
            f"the connection to another process of this run was lost: a host or a process died, or the network broke. "
            f"{way_on} ({reason})"
        ) from error


def check_restarts() -> None:
    """Refuses to begin where torchrun would start processes again which then wait for ever.

    By default its agents keep one store for all attempts, in which processes that are started again may find the
    addresses of those before them (pytorch/pytorch issue 135712).

    Raises:
        ValueError: naming what to set.
    """
    environment = os.environ
    restarts = int(environment.get("TORCHELASTIC_MAX_RESTARTS", 0)) and int(environment.get("WORLD_SIZE", 1)) > 1
    if restarts and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise ValueError(
            "with --max-restarts, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 and let torchrun's processes find one "
            "another by --standalone or --rdzv-backend c10d: else those that it starts again may wait for ever for "
            "those that are gone"
        )


class HostWatch:
    """Ends this process where nothing is heard of another host any more, one without power or network for instance.

    A connection that was not closed looks like that to a host which computes for long, so that the libraries wait.
    The first process of each host gives and looks for signs of life in the store by which the processes found one
    another; its launcher ends the others with it. On a single host there is nothing to do.

    Args:
        accelerator: the run's.
        way_on: what to do then, for the message.
    """

    def __init__(self, accelerator: Accelerator, way_on: str):
        self.way_on, self._stopped = way_on, threading.Event()
        hosts, self.own = _hosts(accelerator), _first_process_of_host(accelerator)
        if len(hosts) == 1:
            return
        self.names = {process: name for process, name in hosts.items() if process != self.own}
        is_watching = accelerator.is_local_main_process
        if is_watching:
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self.store = TCPStore(address, port, wait_for_workers=False)
            self._give_sign()
        accelerator.wait_for_everyone()
        if is_watching:
            self.signs, self.heard_at = {}, dict.fromkeys(self.names, time.monotonic())
            for work in (self._exchange_signs, self._watch):
                threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """From here on the other hosts may end."""
        self._stopped.set()

    def _give_sign(self) -> None:
        self.store.set(f"onlstm_hf/{self.own}", repr(time.time()))

    def _exchange_signs(self) -> None:
        """In a thread of its own: where the host that has the store is gone, a call may never return."""
        while not self._stopped.wait(BETWEEN_SIGNS):
            with suppress(RuntimeError):
                self._give_sign()
                for process in self.names:
                    sign = self.store.get(f"onlstm_hf/{process}")
                    if sign != self.signs.get(process):
                        self.signs[process], self.heard_at[process] = sign, time.monotonic()

    def _watch(self) -> None:
        while not self._stopped.wait(BETWEEN_SIGNS):
            now = time.monotonic()
            silent = [name for process, name in self.names.items() if now - self.heard_at[process] > LONGEST_SILENCE]
            if silent:
                print(
                    f"\nnothing was heard of {', '.join(silent)} for {LONGEST_SILENCE:.0f} seconds: a host died, or "
                    f"the network broke. {self.way_on}",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)


def _first_process_of_host(accelerator: Accelerator) -> int:
    return accelerator.process_index - accelerator.local_process_index


def _hosts(accelerator: Accelerator) -> dict[int, str]:
    """The first process of every host, and the host's name."""
    return dict(gather_object([(_first_process_of_host(accelerator), platform.node())]))


@contextmanager
def read_from_first_host(folder: Path, accelerator: Accelerator) -> Iterator[Path]:
    """A folder of the first host, for all processes to read: other hosts get a copy for the time of the block.

    They get it even if they share the disk, since a network file system may still show them an older folder.
    """
    if len(_hosts(accelerator)) == 1:
        yield folder
        return
    first = _first_process_of_host(accelerator)
    copy = folder.with_name(f".{folder.name}.received_{first}")
    gets_copy = first > 0 and accelerator.is_local_main_process
    try:
        if gets_copy:  # what a process that was killed left there
            shutil.rmtree(copy, ignore_errors=True)
        for name, content in _files_of_first_process(folder, accelerator):
            if gets_copy:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                (copy / name).write_bytes(content)
        accelerator.wait_for_everyone()
        yield copy if first > 0 else folder
        accelerator.wait_for_everyone()
    finally:
        if gets_copy:
            shutil.rmtree(copy, ignore_errors=True)


def _files_of_first_process(folder: Path, accelerator: Accelerator) -> Iterator[tuple[str, bytes]]:
    is_first = accelerator.is_main_process
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if is_first else []
    (names,) = broadcast_object_list([[path.relative_to(folder).as_posix() for path in paths]])
    for name in names:
        (content,) = broadcast_object_list([(folder / name).read_bytes() if is_first else None])
        yield name, content


@contextmanager
def written_on_first_host(folder: Path, accelerator: Accelerator) -> Iterator[Path]:
    """Where each process writes its part of a folder, which the first host has as a whole after the block."""
    is_elsewhere = _first_process_of_host(accelerator) > 0
    with TemporaryDirectory() as temporary:
        own = Path(temporary) if is_elsewhere else folder
        yield own
        if accelerator.num_processes == 1:
            return
        parts = gather_object([{path.name: path.read_bytes() for path in own.iterdir()} if is_elsewhere else {}])
        if accelerator.is_main_process:
            for part in parts:
                for name, content in part.items():
                    (folder / name).write_bytes(content)


def in_step(batches: Iterator[TrainingBatch], accelerator: Accelerator) -> Iterator[TrainingBatch]:
    """The batches of this process, up to where any process has no more: an update needs one of each."""
    num_common = BATCHES_AT_ONCE
    while num_common == BATCHES_AT_ONCE:
        own = list(islice(batches, BATCHES_AT_ONCE))
        num_common = int(accelerator.gather(torch.tensor([len(own)], device=accelerator.device)).min())
        yield from own[:num_common]
