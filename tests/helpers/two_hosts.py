"""Two hosts on one machine: network namespaces, each with its own name and address, joined by a pair of cards."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psutil


class Host(NamedTuple):
    """Where programs run.

    Attributes:
        address: in the network of both hosts.
        interface: the network card that has it.
        prefix: what stands before a command that is to run there.
    """

    address: str
    interface: str
    prefix: Sequence[str] = ()

    def start(self, command: Sequence[str], output: str, environment: Mapping[str, str]) -> subprocess.Popen:
        """Starts a command there; what it prints goes to the file `output`."""
        variables = {**os.environ, **environment, "GLOO_SOCKET_IFNAME": self.interface}
        with open(output, "w") as file:
            return subprocess.Popen([*self.prefix, *command], stdout=file, stderr=file, env=variables)


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
            inside = ("ip", "netns", "exec", name)
            for arguments in (["link", "set", "lo", "up"], ["addr", "add", f"{address}/24", "dev", card],
                              ["link", "set", card, "up"]):  # fmt: skip
                _ip("-n", name, *arguments)
            rename = f'echo host-{number} > /proc/sys/kernel/hostname; exec "$@"'
            hosts.append(Host(address, card, (*inside, "unshare", "--uts", "sh", "-c", rename, "sh")))
        _run(*hosts[0].prefix, "true")
        yield hosts
    finally:
        for name in names if shutil.which("ip") else ():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def kill_all(process: subprocess.Popen) -> None:
    """Ends a process and all that it started, at once and without a word to them."""
    everything = [*psutil.Process(process.pid).children(recursive=True), process]
    for one in everything:
        one.send_signal(signal.SIGKILL)
    process.wait()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PermissionError(f"{error.filename} is not installed (Debian: iproute2)") from error
    except subprocess.CalledProcessError as error:
        raise PermissionError(f"network namespaces are not permitted here: {error.stderr.strip()}") from error
