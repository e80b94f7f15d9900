"""Processes that communicate over the loopback interface, like those of several hosts."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess

import psutil

ADDRESS = "127.0.0.1"
_INTERFACE = {"GLOO_SOCKET_IFNAME": "lo"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        return free.getsockname()[1]


def start_process(command: Sequence[str], output: str, environment: Mapping[str, str]) -> subprocess.Popen:
    """Starts a command and redirects its output to the file `output`."""
    with open(output, "w") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment, **_INTERFACE})


def enter_process(output: str, environment: Mapping[str, str]) -> None:
    """Sets up this process like one of `start_process`."""
    os.environ |= {**environment, **_INTERFACE}
    with open(output, "w") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))


def kill_all(process: subprocess.Popen | BaseProcess) -> None:
    """Kills a process and all its descendants."""
    root = psutil.Process(process.pid)
    for one in [*root.children(recursive=True), root]:
        one.kill()
    process.wait() if isinstance(process, subprocess.Popen) else process.join()
