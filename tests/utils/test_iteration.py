import sys

import pytest
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

from onlstm_hf.utils import iteration
from onlstm_hf.utils.iteration import progress_bar


def is_shown(capsys, **options):
    assert list(progress_bar(range(3), unit="sentence", **options)) == [0, 1, 2]
    captured = capsys.readouterr()
    assert captured.out == ""
    return "sentence" in captured.err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_is_shown_on_a_terminal_once_the_work_takes_long(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert not is_shown(capsys)
    monkeypatch.setattr(iteration, "PROGRESS_AFTER_SECONDS", 0)
    assert is_shown(capsys) == is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_is_shown_or_hidden_on_request(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert is_shown(capsys, shown=True)
    monkeypatch.setattr(iteration, "PROGRESS_AFTER_SECONDS", 0)
    assert not is_shown(capsys, shown=False)


def test_the_switch_of_transformers_hides_all_bars(capsys):
    disable_progress_bar()
    try:
        assert not is_shown(capsys, shown=True)
    finally:
        enable_progress_bar()
