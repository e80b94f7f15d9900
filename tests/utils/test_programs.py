import argparse

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


@pytest.mark.parametrize("text", ["0", "100000", str(2**64), "two"])
def test_invalid_numbers_of_threads_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="from 1 to 1024"):
        thread_count(text)
    assert thread_count("1024") == 1024


def test_programming_errors_are_raised():
    with pytest.raises(KeyError):
        run_program("score.py", lambda: {}["a mistake in the code"])


def test_a_program_that_succeeds_exits_with_0(capsys):
    assert run_program("score.py", lambda: print("done")) == 0
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "two", ""])
def test_only_positive_integers_are_accepted(text, capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=positive_integer)
    assert parser.parse_args(["--size", "12"]).size == 12
    with pytest.raises(SystemExit):
        parser.parse_args([f"--size={text}"])
    assert f"must be a whole number of at least 1, not {text}" in capsys.readouterr().err


def test_remote_code_is_not_trusted_by_default():
    parser = argparse.ArgumentParser()
    add_code_option(parser)
    assert parser.parse_args([]).trust_remote_code is False
    assert parser.parse_args(["--trust-remote-code"]).trust_remote_code is True
