import pytest

from tests.helpers.requirements import library, missing


@pytest.mark.parametrize("strict", ["", "0", "browser", "browser,compiler"])
def test_a_test_that_lacks_something_is_skipped_where_that_is_not_required(monkeypatch, strict):
    monkeypatch.setenv("ONLSTM_STRICT", strict)
    with pytest.raises(pytest.skip.Exception, match="no data here"):
        missing("data", "no data here")


@pytest.mark.parametrize("strict", ["1", "data", "browser,data"])
def test_and_fails_where_it_is(monkeypatch, strict):
    monkeypatch.setenv("ONLSTM_STRICT", strict)
    with pytest.raises(pytest.fail.Exception, match="no data here"):
        missing("data", "no data here")


def test_a_mistyped_requirement_is_no_requirement_that_is_met(monkeypatch):
    monkeypatch.setenv("ONLSTM_STRICT", "dta")
    with pytest.raises(ValueError, match="names dta; there is data, compiler"):
        missing("data", "no data here")


def test_a_library_is_given_or_missing(monkeypatch):
    monkeypatch.setenv("ONLSTM_STRICT", "data")
    assert library("json").loads("1") == 1
    with pytest.raises(pytest.skip.Exception, match="no_such_library is not installed"):
        library("no_such_library")
    monkeypatch.setenv("ONLSTM_STRICT", "libraries")
    with pytest.raises(pytest.fail.Exception, match="pip install it"):
        library("no_such_library", reason="pip install it")
