import argparse
import sys

import pytest

from onlstm_hf.utils.programs import add_code_option, positive_integer, run_program, thread_count


@pytest.mark.parametrize(
    "error, code, message",
    [
        (ValueError("wrong\n  file"), 1, "score.py: wrong file\n"),
        (FileNotFoundError("there is no file x"), 1, "score.py: there is no file x\n"),
        (ImportError("install y"), 1, "score.py: install y\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_user_errors_give_one_line_and_an_exit_code(capsys, error, code, message):
    def work():
        raise error

    assert run_program("score.py", work) == code
    assert capsys.readouterr().err == message


def test_a_closed_standard_output_is_an_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert run_program("score.py", lambda: pytest.fail("it ran")) == 1
    assert "standard output is closed" in capsys.readouterr().err


def test_messages_do_not_go_to_standard_output_if_standard_error_is_closed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert run_program("score.py", lambda: print("a message", file=sys.stderr)) == 0
    sys.stderr.close()
    assert capsys.readouterr().out == ""


def test_success_gives_0_and_programming_errors_are_raised(capsys):
    assert run_program("score.py", lambda: print("done")) == 0
    assert capsys.readouterr().out == "done\n"
    with pytest.raises(KeyError):
        run_program("score.py", lambda: {}["a mistake in the code"])


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "two", ""])
def test_only_integers_within_bounds_are_accepted(text):
    assert positive_integer("12") == 12 and thread_count("1024") == 1024
    with pytest.raises(argparse.ArgumentTypeError, match=f"must be a whole number of at least 1, not {text}"):
        positive_integer(text)
    for number in (text, "1025", str(2**64)):
        with pytest.raises(argparse.ArgumentTypeError, match=f"from 1 to 1024, not {number}"):
            thread_count(number)


def test_remote_code_is_not_trusted_by_default():
    parser = argparse.ArgumentParser()
    add_code_option(parser)
    assert parser.parse_args([]).trust_remote_code is False
    assert parser.parse_args(["--trust-remote-code"]).trust_remote_code is True
