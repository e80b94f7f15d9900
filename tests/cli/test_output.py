"""Interrupted output: what is kept, and how the same command resumes it."""

import os
import shutil
import signal
import sys

import pytest
from filelock import FileLock

from onlstm_hf import ONLSTMForCausalLM
from onlstm_hf.cli import parse
from onlstm_hf.cli.main import main
from tests.helpers.command_line import TEXT, names_in, type_in
from tests.helpers.forked_processes import forked_context

FILE_OPERATIONS = ("open", "os.mkdir", "os.rename", "os.truncate", "os.remove", "shutil.rmtree")
SENTENCES = [TEXT[index % len(TEXT)] for index in range(11)]


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(SENTENCES), encoding="utf-8")
    return path


@pytest.fixture
def arguments(checkpoint, text_file, monkeypatch):
    """A command that writes its output in three parts."""
    monkeypatch.setattr(parse, "BATCHES_AT_A_TIME", 2)
    # The precision is given, as a test asks for another one, and what it is by default depends on the CPU.
    model = ["--model", checkpoint, "--dtype", "float32"]
    return ["parse", "--file", text_file, *model, "--batch-size", 2, "--format", "jsonl"]


@pytest.fixture
def interrupted(run, capsys, arguments, text_file, tmp_path):
    """The output of a command that met a bad line, 9, when two parts of three were done."""
    good = text_file.read_bytes()
    lines = good.split(b"\n")
    text_file.write_bytes(b"\n".join([*lines[:8], b"\xff", *lines[9:]]))
    assert main([*map(str, arguments), "--output", str(tmp_path / "trees")]) == 1
    text_file.write_bytes(good)
    return tmp_path / "trees"


def killed_at(number, arguments):
    """Runs a command in this process, which is killed before that operation on its output."""
    parse.BATCHES_AT_A_TIME = 2
    output, num_operations = arguments[-1], 0

    def count(event, details):
        nonlocal num_operations
        if event in FILE_OPERATIONS and str(details[0]).startswith(output):
            num_operations += 1
            if num_operations == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    sys.exit(main(arguments))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl", "svg"])
def test_killed_at_any_operation_and_called_again_the_output_is_that_of_an_undisturbed_run(
    run, arguments, tmp_path, format
):
    arguments[-1] = format
    run(*arguments, "--output", tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    output, number, exit_code = tmp_path / "trees", 0, None
    while exit_code != 0:
        # Every fifth of the many operations on pictures is enough.
        number += 1 if format == "jsonl" else 5
        process = forked_context().Process(
            target=killed_at, args=(number, [*map(str, arguments), "--output", str(output)])
        )
        process.start()
        process.join(timeout=100)
        exit_code = process.exitcode
        assert exit_code in (0, -signal.SIGKILL)
        if not output.exists():
            run(*arguments, "--output", output)
            assert not output.with_name("trees.partial").exists()
        assert contents(output) == expected
        shutil.rmtree(output) if output.is_dir() else output.unlink()
    assert number > 10


def contents(path):
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [(file.name if path.is_dir() else "", file.read_bytes()) for file in files]


def test_what_is_done_is_not_done_again(run, capsys, arguments, interrupted, tmp_path, monkeypatch):
    assert names_in(tmp_path) == ["text", "trees.partial"]
    num_read, read = [], ONLSTMForCausalLM.parse
    monkeypatch.setattr(
        ONLSTMForCausalLM,
        "parse",
        lambda self, batch, *a, **k: num_read.append(len(batch)) or read(self, batch, *a, **k),
    )
    assert main([*map(str, arguments), "--output", str(interrupted)]) == 0
    assert "continuing after 8 sentences" in capsys.readouterr().err
    assert num_read == [3]
    assert names_in(tmp_path) == ["text", "trees"]
    run(*arguments, "--output", tmp_path / "undisturbed")
    assert interrupted.read_bytes() == (tmp_path / "undisturbed").read_bytes()


def test_an_output_that_lost_its_end_is_refused_and_left_as_it_is(error_of, arguments, interrupted):
    output = interrupted.with_name("trees.partial") / "output"
    whole = output.read_bytes()
    output.write_bytes(whole[:-1])
    message = error_of(*arguments, "--output", interrupted)
    assert str(output) in message and f"{len(whole) - 1} of {len(whole)} bytes" in message
    assert output.read_bytes() == whole[:-1] and not interrupted.exists()


def test_pictures_that_are_lost_are_told(error_of, arguments, text_file, tmp_path, monkeypatch):
    arguments[-1], output = "svg", tmp_path / "trees"
    good = text_file.read_bytes()
    text_file.write_bytes(b"\n".join([*good.split(b"\n")[:8], b"\xff"]))
    error_of(*arguments, "--output", output)
    text_file.write_bytes(good)
    (tmp_path / "trees.partial" / "output" / "3.svg").unlink()
    assert "lacks 1 of 8 pictures" in error_of(*arguments, "--output", output)


@pytest.mark.parametrize("content", ["", '{"sentences": 8, "hash of', "{}", "[]", "8"])
def test_a_torn_record_of_what_is_done_is_named(error_of, arguments, interrupted, content):
    progress = interrupted.with_name("trees.partial") / "progress.json"
    progress.write_text(content)
    assert f"{progress} is damaged" in error_of(*arguments, "--output", interrupted)
    assert progress.read_text() == content


def test_standard_input_is_gone_on_with_as_well(run, arguments, interrupted, text_file, monkeypatch):
    type_in(monkeypatch, text_file.read_bytes())
    run("parse", "-", *arguments[3:], "--output", interrupted)
    assert len(interrupted.read_bytes().splitlines()) == len(SENTENCES)


def test_an_error_keeps_what_is_right_and_says_where(error_of, checkpoint, tmp_path, monkeypatch):
    type_in(monkeypatch, b"the cat\nthe dog\n\xff\n")
    message = error_of("parse", "--model", checkpoint, "--output", tmp_path / "trees")
    assert "byte 0xff in line 3" in message
    assert f"partial results are kept in {tmp_path / 'trees.partial'}; the same command resumes" in message
    assert names_in(tmp_path) == ["trees.partial"]
    assert (tmp_path / "trees.partial" / "output").read_text() == "(the cat)\n(the dog)\n"


def test_nothing_is_left_where_nothing_was_done(error_of, checkpoint, tmp_path, monkeypatch):
    type_in(monkeypatch, b"\xff\nthe dog\n")
    assert "in line 1" in error_of("parse", "--model", checkpoint, "--output", tmp_path / "trees")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "change, message",
    [
        (["--layer", 0], "begun with another --layer"),
        (["--format", "brackets"], "begun with another --format"),
        (["--batch-size", 3], "begun with another --batch-size"),
        (["--dtype", "bfloat16"], "begun with another --model or --dtype"),
        (["--model", "other"], "begun with another --model"),
        (["text"], "begun with other sentences"),
    ],
    ids=lambda change: change[0].strip("-"),
)
def test_other_options_another_model_and_other_text_are_refused(
    error_of, arguments, interrupted, broken_checkpoint, text_file, change, message
):
    before = (interrupted.with_name("trees.partial") / "output").read_bytes()
    if change == ["text"]:
        text_file.write_text("\n".join(["the dog", *SENTENCES[1:]]))
        change = []
    elif "other" in change:
        config = broken_checkpoint / "config.json"
        config.write_text(config.read_text().replace('"parse_layer": 1', '"parse_layer": 0'))
        change = ["--model", broken_checkpoint]
    assert message in error_of(*arguments, *change, "--output", interrupted)
    assert (interrupted.with_name("trees.partial") / "output").read_bytes() == before


def test_two_processes_do_not_write_the_same_output(error_of, arguments, interrupted):
    with FileLock(interrupted.with_name("trees.partial") / "lock"):
        assert "another process is writing" in error_of(*arguments, "--output", interrupted)


def test_a_folder_that_is_something_else_is_left_alone(error_of, arguments, tmp_path):
    (tmp_path / "trees.partial").mkdir()
    (tmp_path / "trees.partial" / "thesis").write_text("text")
    assert "is no part of an output" in error_of(*arguments, "--output", tmp_path / "trees")
    assert (tmp_path / "trees.partial" / "thesis").read_text() == "text"


def test_ctrl_c_says_where_what_is_done_lies(capsys, arguments, tmp_path, monkeypatch):
    parse_batch = ONLSTMForCausalLM.parse

    def interrupt(self, batch, *arguments, **options):
        if len(batch) < 4:
            raise KeyboardInterrupt
        return parse_batch(self, batch, *arguments, **options)

    monkeypatch.setattr(ONLSTMForCausalLM, "parse", interrupt)
    assert main([*map(str, arguments), "--output", str(tmp_path / "trees")]) == 130
    assert "the same command resumes" in capsys.readouterr().err
