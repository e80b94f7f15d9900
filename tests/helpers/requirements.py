"""Optional requirements of tests: a missing one skips the test, or fails it if `ONLSTM_STRICT` requires it.

`ONLSTM_STRICT=1` requires everything; `ONLSTM_STRICT=data,browser` requires the named kinds, so that no test is
skipped on a machine that is known to have them.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import NoReturn

import pytest

KINDS = (*("data", "compiler", "browser", "axe", "node", "instructions", "libraries", "common", "quantizers"),)


def missing(kind: str, reason: str) -> NoReturn:
    """Skips the running test, or fails it if `ONLSTM_STRICT` requires this kind.

    Args:
        kind: one of `KINDS`: reference data, a C++ compiler (or its products), a browser, axe-core, Node, CPU
            instructions, Python libraries, the common tests of Transformers, quantisation libraries.
        reason: what is missing, and how to get it.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if is_required(kind):
        pytest.fail(f"{reason} (ONLSTM_STRICT requires: {kind})", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def is_required(kind: str) -> bool:
    """Returns whether `ONLSTM_STRICT` requires a kind. An unknown name there raises a `ValueError`."""
    asked = os.environ.get("ONLSTM_STRICT", "")
    if asked in ("", "0", "1"):
        return asked == "1"
    names = asked.split(",")
    if unknown := sorted(set(names) - set(KINDS)):
        raise ValueError(f"ONLSTM_STRICT names {', '.join(unknown)}; there is {', '.join(KINDS)}")
    return kind in names


def library(name: str, reason: str | None = None, kind: str = "libraries") -> ModuleType:
    """Imports an optional library; without it the test is skipped or fails."""
    try:
        return import_module(name)
    except ImportError:
        missing(kind, reason or f"{name} is not installed")
