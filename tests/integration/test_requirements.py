import pytest

from tests.helpers.requirements import library, missing


@pytest.mark.parametrize(
    ("strict", "outcome"), [("", pytest.skip), ("browser", pytest.skip), ("1", pytest.fail), ("data", pytest.fail)]
)
def test_a_test_that_lacks_something_is_skipped_unless_that_is_required(monkeypatch, strict, outcome):
    monkeypatch.setenv("ONLSTM_STRICT", strict)
    with pytest.raises(outcome.Exception, match="no data here"):
        missing("data", "no data here")


def test_a_mistyped_requirement_is_refused(monkeypatch):
    monkeypatch.setenv("ONLSTM_STRICT", "dta")
    with pytest.raises(ValueError, match="names dta; there is data, compiler"):
        missing("data", "no data here")


def test_a_library_is_given_or_missing(monkeypatch):
    monkeypatch.setenv("ONLSTM_STRICT", "libraries")
    assert library("json").loads("1") == 1
    with pytest.raises(pytest.fail.Exception, match="pip install it"):
        library("no_such_library", reason="pip install it")
