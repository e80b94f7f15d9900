"""Atomic replacement of checkpoint folders."""

import os
import shutil

import pytest
from accelerate import Accelerator

from training.loop.checkpointing import recover_folder, replaced_folder

NAMES = ("a.txt", "b.txt", "inner/c.txt")
# File system calls during a replacement.
STEPS = [(os, "rename"), (os, "fsync"), (shutil, "rmtree"), (os, "unlink"), (os, "rmdir")]


class Killed(BaseException):
    """Simulates a killed process."""


def fill(folder, content):
    (folder / "inner").mkdir()
    for name in NAMES:
        (folder / name).write_text(content)


def content_of(folder):
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["a.txt", "b.txt", "c.txt"]
    (content,) = {(folder / name).read_text() for name in NAMES}
    return content


def stop_at(monkeypatch, number):
    """Raises `Killed` before call `number` of all `STEPS`, counted from 0. Returns the counter."""
    calls = [0]

    def counted(function):
        def call(*args, **kwargs):
            if calls[0] == number:
                raise Killed
            calls[0] += 1
            return function(*args, **kwargs)

        return call

    for module, name in STEPS:
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    return calls


def replace(target, content):
    with replaced_folder(target, Accelerator(cpu=True)) as folder:
        fill(folder, content)


def test_a_process_killed_at_any_step_leaves_a_complete_checkpoint(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        calls = stop_at(patch, -1)
        replace(tmp_path / "count", "old")
        calls[0] = 0
        replace(tmp_path / "count", "new")
        total = calls[0]
    assert total >= 9
    found = []
    for number in range(total):
        target = tmp_path / str(number) / "last"
        replace(target, "old")
        with monkeypatch.context() as patch, pytest.raises(Killed):
            stop_at(patch, number)
            replace(target, "new")
        recover_folder(target)
        found.append(content_of(target))
        replace(target, "newest")
        assert content_of(target) == "newest"
        assert [path.name for path in target.parent.iterdir()] == ["last"]
    switch = found.index("new")
    assert found == ["old"] * switch + ["new"] * (total - switch)
