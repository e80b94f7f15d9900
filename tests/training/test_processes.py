"""One process at a time in a folder, and processes that end with the one that started them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.loop.processes import PARENT, STARTED_BY, locked_folder

LOCKER = (
    "import time\n"
    "from pathlib import Path\n"
    "from training.loop.processes import locked_folder\n"
    "with locked_folder(Path('folder')):\n"
    "    print('locked', flush=True)\n"
    "    time.sleep(60)\n"
)
WATCHED = (
    "import time\n"
    "from training.loop.processes import end_with_parent\n"
    "end_with_parent()\n"
    "print('started', flush=True)\n"
    "time.sleep(60)\n"
)
# Does not look before its launcher has ended, as a script whose imports take long.
WATCHED_LATE = (
    "import os, time\n"
    f"os.environ['{STARTED_BY}'] = str(os.getppid())\n"
    "print('started', flush=True)\n"
    "while os.getppid() == int(os.environ['ONLSTM_STARTED_BY']):\n"
    "    time.sleep(0.05)\n"
    "from training.loop.processes import end_with_parent\n"
    "end_with_parent()\n"
    "time.sleep(60)\n"
)
# Starts the program of its first argument as a launcher starts a worker, and tells its process number.
LAUNCHER = (
    "import os, subprocess, sys, time\n"
    "worker = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE, text=True,\n"
    "    env=os.environ | {name: value.replace('own', str(os.getpid())) for name, value in [eval(sys.argv[2])]})\n"
    "worker.stdout.readline()\n"
    "print(worker.pid, flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, project_root):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(project_root))


def test_a_folder_is_another_process_s_until_that_ends():
    Path("folder").mkdir()
    with subprocess.Popen([sys.executable, "-c", LOCKER], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        with (
            pytest.raises(ValueError, match="folder is in use: another process is at work in it"),
            locked_folder(Path("folder"), longest_wait=0.3),
        ):
            pass
        other.kill()
    for _ in range(2):
        with locked_folder(Path("folder"), longest_wait=5):
            pass
    assert list(Path("folder").iterdir()) == []


def test_a_folder_that_was_made_for_the_lock_goes_with_it_unless_something_is_in_it():
    with locked_folder(Path("new")):
        assert Path("new").is_dir()
    assert not Path("new").exists()
    with locked_folder(Path("new")):
        Path("new", "kept").touch()
    assert [path.name for path in Path("new").iterdir()] == ["kept"]


def is_running(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("program", [WATCHED, WATCHED_LATE], ids=["at once", "late"])
@pytest.mark.parametrize(
    ("variable", "ends"),
    [
        ((PARENT, "own"), True),
        (("TORCHELASTIC_RUN_ID", "none"), True),
        (("ACCELERATE_DYNAMO_USE_FULLGRAPH", "False"), True),
        (("SHELL", "/bin/sh"), False),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_a_process_ends_with_its_launcher_and_not_with_its_shell(program, variable, ends):
    command = [sys.executable, "-c", LAUNCHER, program, repr(variable)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        worker = int(launcher.stdout.readline())
        launcher.kill()
    deadline = time.monotonic() + (20 if ends else 1.5)
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        assert is_running(worker) != ends
    finally:
        if not ends:
            os.kill(worker, 9)


@pytest.mark.parametrize("script", ["train_lm.py", "train_logic.py", "train_listops.py"])
def test_a_script_notes_who_started_it_before_it_imports_large_libraries(script, tmp_path, project_root):
    for library in ("torch", "transformers"):
        (tmp_path / f"{library}.py").write_text(f"import os\nraise SystemExit('by ' + os.environ['{STARTED_BY}'])\n")
    ended = subprocess.run(
        [sys.executable, project_root / "training" / script],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.stderr == f"by {os.getpid()}\n"
