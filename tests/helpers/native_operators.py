"""What tests of the compiled operators share."""

import pytest

from tests.helpers.requirements import is_required, missing


def needs_operator(operator) -> pytest.MarkDecorator:
    """The mark of a test that needs the compiled operator behind a module."""
    is_missing = operator.load_library() is None and not is_required("compiler")
    return pytest.mark.skipif(is_missing, reason="the package was installed without a C++ compiler")


def use_instruction_set(operator, name: str, monkeypatch) -> None:
    """Makes a module that calls a compiled operator take the library of one instruction set; skips where it lacks."""
    library = operator.load_library(name)
    if library is None:
        missing("instructions", f"no operator with {name} instructions was built that this CPU can run")
    monkeypatch.setattr(operator, "load_library", lambda: library)
