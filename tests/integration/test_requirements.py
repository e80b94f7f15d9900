import pytest

from tests.helpers.requirements import missing


@pytest.mark.parametrize(
    ("strict", "outcome"), [("", pytest.skip), ("browser", pytest.skip), ("1", pytest.fail), ("data", pytest.fail)]
)
def test_a_missing_requirement_skips_or_fails_a_test(monkeypatch, strict, outcome):
    monkeypatch.setenv("ONLSTM_STRICT", strict)
    with pytest.raises(outcome.Exception, match="no data here"):
        missing("data", "no data here")


def test_an_unknown_requirement_is_refused(monkeypatch):
    monkeypatch.setenv("ONLSTM_STRICT", "dta")
    with pytest.raises(ValueError, match="names dta; there is data, compiler"):
        missing("data", "no data here")
