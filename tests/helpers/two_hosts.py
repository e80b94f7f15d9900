"""Two hosts on one machine: network namespaces, each with its own name and address, joined by a pair of cards."""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import psutil

CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000


class Host(NamedTuple):
    """A host that programs run on.

    Attributes:
        address: in the network of both hosts.
        interface: the network card that has it.
        name: of the host and its namespace; empty where it is this machine.
    """

    address: str
    interface: str
    name: str = ""

    @property
    def prefix(self) -> Sequence[str]:
        """The prefix of a command that runs there."""
        if not self.name:
            return ()
        rename = f'echo {self.name} > /proc/sys/kernel/hostname; exec "$@"'
        return ("ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", rename, "sh")

    def start(self, command: Sequence[str], output: str, environment: Mapping[str, str]) -> subprocess.Popen:
        """Starts a command there; what it prints goes to the file `output`."""
        variables = {**os.environ, **environment, "GLOO_SOCKET_IFNAME": self.interface}
        with open(output, "w") as file:
            return subprocess.Popen([*self.prefix, *command], stdout=file, stderr=file, env=variables)

    def enter(self, output: str, environment: Mapping[str, str]) -> None:
        """Moves this process there as `start` does it with one that it starts."""
        os.environ |= {**environment, "GLOO_SOCKET_IFNAME": self.interface}
        with open(output, "w") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        if self.name:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{self.name}") as namespace:
                entered = libc.setns(namespace.fileno(), CLONE_NEWNET) or libc.unshare(CLONE_NEWUTS)
            if entered != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter the namespace {self.name}")
            socket.sethostname(self.name)


def loopback_hosts() -> list[Host]:
    """This machine twice: what can be had without any right."""
    return [Host("127.0.0.1", "lo")] * 2


@contextmanager
def namespace_hosts() -> Iterator[list[Host]]:
    """Two hosts of their own for the time of the block.

    Raises:
        PermissionError: where namespaces cannot be made, with the reason.
    """
    names = [f"onlstm-{os.getpid()}-{side}" for side in "ab"]
    cards = [f"on{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", cards[0], "netns", names[0], "type", "veth", "peer", cards[1], "netns", names[1])
        hosts = []
        for number, (name, card) in enumerate(zip(names, cards, strict=True), start=1):
            address = f"10.77.0.{number}"
            for arguments in (["link", "set", "lo", "up"], ["addr", "add", f"{address}/24", "dev", card],
                              ["link", "set", card, "up"]):  # fmt: skip
                _ip("-n", name, *arguments)
            hosts.append(Host(address, card, name))
        _run(*hosts[0].prefix, "true")
        yield hosts
    finally:
        for name in names if shutil.which("ip") else ():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def kill_all(process: subprocess.Popen | BaseProcess) -> None:
    """Ends a process and all that it started, at once and without a word to them."""
    root = psutil.Process(process.pid)
    for one in [*root.children(recursive=True), root]:
        one.kill()
    process.wait() if isinstance(process, subprocess.Popen) else process.join()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PermissionError(f"{error.filename} is not installed (Debian: iproute2)") from error
    except subprocess.CalledProcessError as error:
        raise PermissionError(f"network namespaces are not permitted here: {error.stderr.strip()}") from error
