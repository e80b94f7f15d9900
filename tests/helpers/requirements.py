"""Requirements of tests beside the package: missing ones skip a test, or fail it if they are asked for.

A test that lacks something is skipped, with the reason. `ONLSTM_STRICT=1` makes such tests fail instead, and
`ONLSTM_STRICT=data,browser` only those that lack one of the things named: where a machine is known to have them, no
test may pass by not being run.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import NoReturn

import pytest

KINDS = (*("data", "compiler", "browser", "axe", "node", "instructions", "libraries", "common", "quantizers"),)


def missing(kind: str, reason: str) -> NoReturn:
    """Skips the test that runs, or fails it where the thing must not be missing.

    Args:
        kind: one of `KINDS`: reference data, a C++ compiler (or what it builds), a browser, axe-core for it,
            Node, instructions of the CPU, libraries of Python, the common tests of Transformers, libraries that
            quantise.
        reason: what is missing, and how to get it.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if is_required(kind):
        pytest.fail(f"{reason} (ONLSTM_STRICT requires: {kind})", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def is_required(kind: str) -> bool:
    """Returns whether a thing must be there. A mistyped name is a `ValueError`."""
    asked = os.environ.get("ONLSTM_STRICT", "")
    if asked in ("", "0", "1"):
        return asked == "1"
    names = asked.split(",")
    if unknown := sorted(set(names) - set(KINDS)):
        raise ValueError(f"ONLSTM_STRICT names {', '.join(unknown)}; there is {', '.join(KINDS)}")
    return kind in names


def library(name: str, reason: str | None = None, kind: str = "libraries") -> ModuleType:
    """An optional library; a test that lacks it is skipped or fails."""
    try:
        return import_module(name)
    except ImportError:
        missing(kind, reason or f"{name} is not installed")
