import pytest

from onlstm_hf.fast.recurrence.native_library import NativeOperator
from tests.helpers.requirements import is_required, missing


def needs_operator(operator: NativeOperator) -> pytest.MarkDecorator:
    """Returns the mark of tests that need a compiled operator."""
    is_missing = operator.instruction_set() is None and not is_required("compiler")
    return pytest.mark.skipif(is_missing, reason="the package was installed without a C++ compiler")


def use_instruction_set(operator: NativeOperator, name: str, monkeypatch) -> None:
    """Makes a compiled operator use the library of one instruction set; skips the test if it is missing."""
    if name not in operator.libraries:
        missing("instructions", f"no operator with {name} instructions was built that this CPU can run")
    monkeypatch.setitem(vars(operator), "instruction_set", lambda: name)
