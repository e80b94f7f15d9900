"""Checksums of files in the cache of the Hub's client, whose layout is made here by hand."""

import hashlib
import os
import subprocess
import time
from pathlib import Path
from unittest import mock

import pytest

from onlstm_hf.utils import download_check
from onlstm_hf.utils.download_check import MARK, check_download, hub_checksum

COMMIT = "c" * 40


@pytest.fixture
def repository(tmp_path) -> Path:
    """Of a model `ada/tiny`, two files of which are in the cache `tmp_path`."""
    root = tmp_path / "models--ada--tiny"
    for folder in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (root / folder).mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    add(root, "config.json", b'{"model_type": "onlstm"}', hashlib.sha1)
    add(root, "model.safetensors", b"weights", hashlib.sha256)
    return root


def add(root: Path, name: str, content: bytes, algorithm) -> Path:
    """Puts a file into the cache as the client does, and returns its blob."""
    header = b"blob %d\0" % len(content) if algorithm is hashlib.sha1 else b""
    blob = root / "blobs" / algorithm(header + content).hexdigest()
    blob.write_bytes(content)
    link = root / "snapshots" / COMMIT / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    download_again(link, ago=5.0)
    return blob


def download_again(link: Path, ago: float = 0.0) -> None:
    """Gives a link the time at which the client makes it, so many seconds ago."""
    os.utime(link, (time.time() - ago,) * 2, follow_symlinks=False)


@pytest.fixture
def checked():
    """How many files have been hashed."""
    with mock.patch.object(download_check, "hub_checksum", wraps=hub_checksum) as counted:
        yield lambda: len(counted.call_args_list)


def blob_of(root: Path, name: str) -> Path:
    return (root / "snapshots" / COMMIT / name).resolve()


def test_the_checksum_of_a_small_file_is_that_of_git(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n" * 200_000)  # more than is read at a time
    git = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, check=True)
    assert hub_checksum(path, is_large=False) == git.stdout.strip() == hub_checksum(path.read_bytes(), is_large=False)
    assert hub_checksum(path, is_large=True) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_that_arrived_well_pass(repository):
    check_download("ada/tiny", cache_dir=str(repository.parent))
    check_download("ada/tiny", cache_dir=str(repository.parent), revision=COMMIT)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("place", [{}, {"revision": "main"}, {"revision": COMMIT}], ids=str)
def test_a_damaged_file_is_an_error_and_removed(repository, name, place):
    blob = blob_of(repository, name)
    blob.write_bytes(blob.read_bytes()[::-1])
    with pytest.raises(OSError, match=f"{name} of ada/tiny .* another checksum. The damaged file is removed"):
        check_download("ada/tiny", cache_dir=str(repository.parent), **place)
    assert not blob.exists()
    check_download("ada/tiny", cache_dir=str(repository.parent), **place)


def test_files_of_a_subfolder_and_of_other_revisions_are_checked(repository):
    blob = add(repository, "small/model-00001-of-00002.safetensors", b"small weights", hashlib.sha256)
    blob.write_bytes(b"SMALL weights")
    with pytest.raises(OSError, match="model-00001-of-00002.safetensors of ada/tiny"):
        check_download("ada/tiny", cache_dir=str(repository.parent))
    check_download("ada/tiny", cache_dir=str(repository.parent), subfolder="small")


def test_what_was_checked_is_not_hashed_again(repository, checked):
    for _ in range(3):
        check_download("ada/tiny", cache_dir=str(repository.parent))
        assert checked() == 2
    check_download("ada/tiny", cache_dir=str(repository.parent), revision=COMMIT)
    assert checked() == 2
    assert [path.name for path in repository.iterdir() if path.is_file()] == [MARK]


def test_only_what_is_downloaded_after_a_check_is_hashed(repository, checked):
    check_download("ada/tiny", cache_dir=str(repository.parent))
    blob = add(repository, "tokenizer.json", b"{}", hashlib.sha1)
    download_again(repository / "snapshots" / COMMIT / "tokenizer.json")
    blob.write_bytes(b"[]")
    with pytest.raises(OSError, match="tokenizer.json of ada/tiny"):
        check_download("ada/tiny", cache_dir=str(repository.parent))
    assert checked() == 3


def test_after_damage_everything_that_was_not_found_whole_is_checked(repository, checked):
    for name in ("config.json", "model.safetensors"):
        blob = blob_of(repository, name)
        blob.write_bytes(blob.read_bytes()[::-1])
    for _ in range(2):
        with pytest.raises(OSError, match="another checksum"):
            check_download("ada/tiny", cache_dir=str(repository.parent))
    assert checked() == 2 and not (repository / MARK).exists()


def test_in_a_cache_that_cannot_be_written_to_nothing_was_downloaded(repository, checked, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check_download("ada/tiny", cache_dir=str(repository.parent))
    assert checked() == 0 and not (repository / MARK).exists()


def test_a_file_in_a_store_that_repositories_share_is_known_by_its_checksum_all_the_same(repository):
    """Such a store names files by another hash, and the blob is a link to it."""
    blob = blob_of(repository, "model.safetensors")
    stored = repository.parent / ("e" * 64)
    blob.rename(stored)
    blob.symlink_to(stored)
    check_download("ada/tiny", cache_dir=str(repository.parent))
    stored.write_bytes(b"WEIGHTS")
    download_again(repository / "snapshots" / COMMIT / "model.safetensors")
    with pytest.raises(OSError, match="model.safetensors of ada/tiny"):
        check_download("ada/tiny", cache_dir=str(repository.parent))
    assert not stored.exists()


def test_what_has_no_announced_checksum_is_left_alone(repository, tmp_path, monkeypatch):
    link = repository / "snapshots" / COMMIT / "model.safetensors"
    link.unlink()
    link.write_bytes(b"as on systems without links")
    add(repository, "modeling.py", b"code", hashlib.sha1).write_bytes(b"CODE")
    check_download("ada/tiny", cache_dir=str(repository.parent))
    check_download("ada/elsewhere", cache_dir=str(repository.parent))
    check_download("no repository's name/", cache_dir=str(repository.parent))

    monkeypatch.chdir(tmp_path)
    blob_of(repository, "config.json").write_bytes(b"[]")
    (tmp_path / "ada" / "tiny").mkdir(parents=True)
    check_download("ada/tiny", cache_dir=str(repository.parent))  # a folder of this name is what is loaded
