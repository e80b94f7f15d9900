import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onlstm_hf.fast.recurrence.operator import Recurrence
from tests.helpers.requirements import library


def record_paths(monkeypatch: pytest.MonkeyPatch, recurrence: Recurrence) -> list[tuple[str, str]]:
    """Returns a list to which every later run of a fast path appends the path's name and the direction."""
    ran: list[tuple[str, str]] = []

    def recorded(name: str, direction: str, run: Callable) -> Callable:
        def run_and_record(*arguments):
            ran.append((name, direction))
            return run(*arguments)

        return run_and_record

    for name, path in recurrence.paths.items():
        forward, backward = recorded(name, "forward", path.forward), recorded(name, "backward", path.backward)
        monkeypatch.setitem(recurrence.paths, name, path._replace(forward=forward, backward=backward))
    return ran


def run_in_the_interpreter(tests: str) -> None:
    """Runs tests of this folder in a process with Triton's interpreter on the CPU; all must pass."""
    library("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", Path(__file__).with_name(tests)]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def compile_kernel(kernel, constants: dict, types: dict[str, str], capability: int) -> None:
    """Compiles a Triton kernel from its constants and argument types, for a GPU that may be absent."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    used = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in used else types[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in used.items()}
    assert compile(ASTSource(kernel, signature, places), target=GPUTarget("cuda", capability, 32)).asm["cubin"]
