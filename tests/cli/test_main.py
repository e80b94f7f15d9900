import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

from onlstm_hf import __version__
from onlstm_hf.cli.main import build_parser, main
from onlstm_hf.fast.onlstm.native import OPERATOR as ONLSTM
from onlstm_hf.fast.prpn.native import OPERATOR as PRPN
from tests.helpers.command_line import CONSOLE_SCRIPT

SUBCOMMANDS = ["parse", "compare", "score", "parse-corpus", "demo", "page", "convert", "export", "push"]


@pytest.fixture
def run_installed(tmp_path, project_root, monkeypatch):
    """Runs the installed command in a separate process, which lists its imports on standard error."""
    monkeypatch.setenv("PYTHONPATH", str(project_root))
    script = tmp_path / "onlstm-hf"
    script.write_text(CONSOLE_SCRIPT)

    def run_installed(*arguments):
        start = [] if arguments[0] == "-m" else [str(script)]
        command = [sys.executable, "-X", "importtime", *start, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    return run_installed


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["--help"], 0),
        (["-m", "onlstm_hf", "--help"], 0),
        *[([subcommand, "--help"], 0) for subcommand in ("parse", "demo", "push")],
        (["prase", "text"], 2),
    ],
)
def test_help_and_wrong_usage_import_no_large_library(run_installed, arguments, code):
    process = run_installed(*arguments)
    assert process.returncode == code, process.stderr
    packages = set(re.findall(r"^import time:.*\| +(\w+)", process.stderr, re.MULTILINE))
    assert "onlstm_hf" in packages
    assert not packages & {"torch", "transformers", "tokenizers", "huggingface_hub", "numpy"}


@pytest.mark.parametrize("arguments", [[], *[[subcommand] for subcommand in SUBCOMMANDS]])
def test_every_example_of_the_help_is_a_valid_command(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--help"])
    assert exit_.value.code == 0
    examples = re.findall(r"^  (?:.*\| )?onlstm-hf (.*?)(?: \|.*)?$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    for example in examples:
        build_parser().parse_args(shlex.split(example))


def test_version_names_the_instruction_set_of_each_compiled_operator(run_installed):
    process = run_installed("-m", "onlstm_hf", "--version")
    sets = {"ON-LSTM": ONLSTM.instruction_set(), "PRPN": PRPN.instruction_set()}
    expected = [f"compiled operator of the {model}: {name or 'none'}" for model, name in sets.items()]
    assert (process.returncode, process.stdout.splitlines()) == (0, [f"onlstm-hf {__version__}", *expected])
    assert "transformers" not in process.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["pares", "text"], ["parse", "text", "--batch-size", "0"], ["demo", "--port", "99999"]]
)
def test_wrong_usage_exits_with_2(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: onlstm-hf" in capsys.readouterr().err


def test_interruption_during_the_import_shows_no_traceback(tmp_path, project_root):
    interrupt = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    script = tmp_path / "onlstm-hf"
    script.write_text(f"import onlstm_hf\n{interrupt}\n")
    environment = {**os.environ, "PYTHONPATH": str(project_root)}
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 300}
    # Background jobs of a shell ignore interruptions, and this process would inherit that.
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.run([sys.executable, script], **options)
    assert (process.returncode, process.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("step", ["onlstm_hf.cli.main.import_module", "onlstm_hf.utils.checkpoints.load_checkpoint"])
def test_interruption_exits_with_130(monkeypatch, capsys, step):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(step, interrupt)
    assert main(["parse", "text", "--model", "any"]) == 130
    assert capsys.readouterr().err == ""


def test_checkpoints_may_precede_and_follow_an_option(checkpoint, tmp_path, capsys):
    folder = str(tmp_path / "page")
    assert main(["page", folder, "--precision", "float32", str(checkpoint)]) == 0
    assert (tmp_path / "page" / "index.html").is_file()
    for arguments in (["page", folder, "--precison", "float32"], ["compare", "a", "b", "--format", "tree", "c"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert "unrecognized arguments" in capsys.readouterr().err
