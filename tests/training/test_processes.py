"""Lock of an output folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from training.loop import processes
from training.loop.processes import locked_folder

LOCKER = (
    "import time\n"
    "from pathlib import Path\n"
    "from training.loop.processes import locked_folder\n"
    "with locked_folder(Path('folder')):\n"
    "    print('locked', flush=True)\n"
    "    time.sleep(60)\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, project_root):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(project_root))


def test_a_folder_is_locked_until_the_other_process_ends(monkeypatch):
    monkeypatch.setattr(processes, "LONGEST_WAIT", 0.3)
    Path("folder").mkdir()
    with subprocess.Popen([sys.executable, "-c", LOCKER], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        with (
            pytest.raises(ValueError, match="folder is in use: another process is at work in it"),
            locked_folder(Path("folder")),
        ):
            pass
        other.kill()
    for _ in range(2):
        with locked_folder(Path("folder")):
            pass
    assert list(Path("folder").iterdir()) == []


def test_a_folder_created_for_the_lock_is_removed_with_it_if_empty():
    with locked_folder(Path("new")):
        assert Path("new").is_dir()
    assert not Path("new").exists()
    with locked_folder(Path("new")):
        Path("new", "kept").touch()
    assert [path.name for path in Path("new").iterdir()] == ["kept"]
