import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def exported(monkeypatch):
    """The arguments of the exports, which are not made."""
    calls = []

    def export_checkpoint(checkpoint: str, folder: str) -> str:
        calls.append((checkpoint, folder))
        if checkpoint == "missing":
            raise FileNotFoundError("there is no checkpoint folder missing")
        return f"{folder}: 12 files"

    monkeypatch.setitem(sys.modules, "onlstm_hf.hub.export", SimpleNamespace(export_checkpoint=export_checkpoint))
    return calls


def test_export_names_the_checkpoint_and_the_new_folder(run, exported):
    assert run("export", "checkpoint", "folder") == "folder: 12 files\n"
    assert exported == [("checkpoint", "folder")]


def test_an_export_that_fails_ends_with_one_line(error_of, exported):
    assert "there is no checkpoint folder missing" in error_of("export", "missing", "folder")
