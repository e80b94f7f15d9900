import bz2
import gzip
import lzma
import os
import random
from itertools import accumulate
from pathlib import Path

import pyarrow
import pytest
from fsspec import register_implementation
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile
from pyarrow import parquet

from onlstm_hf.corpus import readers
from onlstm_hf.corpus.readers import DatasetReader, file_parts, file_reader

LINES = [f"sentence number {number} of a text" for number in range(40)]


def read(folder, world_size=1, kind=None, **keys):
    """Returns the documents of every task."""
    reader = file_reader(str(folder), kind, **keys)
    return [list(reader(rank=rank, world_size=world_size)) for rank in range(world_size)]


def texts(tasks):
    return [[document.text for document in documents] for documents in tasks]


def only_task(tasks):
    (documents,) = tasks
    return [(document.text, document.metadata.get("reason")) for document in documents]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 100])
def test_tasks_together_read_each_line_once_in_order(tmp_path, world_size):
    (tmp_path / "a.txt").write_text("\n".join(LINES[:25]) + "\n")
    (tmp_path / "b.txt").write_text("\r\n".join(LINES[25:]))
    tasks = read(tmp_path, world_size)
    assert sum(texts(tasks), []) == LINES
    assert max(map(len, tasks)) <= 40 / world_size + 2
    offsets = accumulate((len(line) + 1 for line in LINES[:24]), initial=0)
    assert [document.id for document in sum(tasks, [])][:25] == [f"a.txt/{offset}" for offset in offsets]


class RemoteFile(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        return Path(self.path).read_bytes()[start:end]


class RemoteFiles(LocalFileSystem):
    protocol = "remote"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("remote://"))

    def _open(self, path, mode="rb", **_):
        return RemoteFile(self, path, mode, size=self.info(path)["size"])


def test_remote_files_are_read_in_parts(tmp_path, monkeypatch):
    register_implementation("remote", RemoteFiles)
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    assert sum(texts(read(f"remote://{tmp_path}", 3)), []) == LINES


@pytest.mark.parametrize("files", [[("a", 5), ("b.gz", 7), ("c", 1)], [("a.gz", 9)], [("a", 0), ("b", 3)], []])
@pytest.mark.parametrize("world_size", [1, 2, 3, 20])
def test_every_byte_is_in_one_part(files, world_size):
    parts = [part for rank in range(world_size) for part in file_parts(dict(files), rank, world_size)]
    for path, size in files:
        covered = [byte for name, start, end in parts if name == path for byte in range(start, end)]
        assert covered == list(range(size))


COMPRESSED = [("gz", gzip.open), ("bz2", bz2.open), ("xz", lzma.open), ("zst", readers.zstd.open)]


@pytest.mark.parametrize(("ending", "compressed_open"), COMPRESSED)
def test_a_compressed_file_of_several_parts_is_read_to_its_end_by_one_task(tmp_path, ending, compressed_open):
    for part in (LINES[:20], LINES[20:]):
        with compressed_open(tmp_path / f"a.txt.{ending}", "at") as file:
            file.writelines(f"{line}\n" for line in part)
    assert sorted(texts(read(tmp_path, 3)), key=len) == [[], [], LINES]


@pytest.mark.parametrize(("ending", "compressed_open"), COMPRESSED)
@pytest.mark.parametrize("damage", ["cut", "flipped", "replaced"])
def test_good_lines_of_a_damaged_compressed_file_are_read_and_the_rest_has_a_reason(
    tmp_path, monkeypatch, ending, compressed_open, damage
):
    said = []
    monkeypatch.setattr(readers.logger, "warning", said.append)
    path = tmp_path / f"a.txt.{ending}"
    lines = [f"{number} {random.Random(number).random()}" for number in range(30_000)]
    with compressed_open(path, "wt") as file:
        file.write("\n".join(lines))
    content = bytearray(path.read_bytes())
    place = 3 * len(content) // 4
    content[place] ^= 255
    path.write_bytes({"cut": content[:place], "flipped": content, "replaced": b"no such format"}[damage])
    (tmp_path / "b.txt").write_text("the next file")
    *good, bad, after = only_task(read(tmp_path))
    assert bad == ("", "rest of a damaged file") and after == ("the next file", None)
    assert len(said) == 1 and "cannot be read (rest of a damaged file)" in said[0]
    if damage == "cut":
        assert good == [(line, None) for line in lines[: len(good)]]
        assert len(good) > 0.6 * len(lines) or ending == "bz2"
    if damage == "flipped" and ending != "bz2":  # bz2 returns the text of a block before it detects damage
        assert good[:100] == [(line, None) for line in lines[:100]]


def test_system_errors_do_not_count_as_damage(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("\n".join(LINES))
    monkeypatch.setattr(gzip.GzipFile, "readline", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        read(tmp_path)


def test_lines_that_are_not_utf8_have_a_reason(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n\xff\xfe\n\nalso fine\n")
    assert only_task(read(tmp_path)) == [("fine", None), ("", "not UTF-8"), ("", None), ("also fine", None)]


@pytest.mark.parametrize("name, content", [("a.txt", "the cat\n"), ("a.jsonl", '{"text": "the cat"}\n')])
def test_a_byte_order_mark_is_removed(tmp_path, name, content):
    (tmp_path / name).write_text("\ufeff" + content * 2, encoding="utf-8")
    (documents,) = read(tmp_path)
    assert [document.text for document in documents] == ["the cat", "the cat"]
    assert documents[1].id == f"{name}/{3 + len(content)}"


def test_a_very_long_line_is_skipped_without_keeping_it_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 100)
    (tmp_path / "a.txt").write_bytes(b"before\n" + b"x" * 5000 + b"\n" + b"y" * 99 + b"\nafter\n")
    documents = only_task(read(tmp_path))
    assert documents == [("before", None), ("", readers.TOO_LONG), ("y" * 99, None), ("after", None)]


def test_json_lines_are_documents_or_have_a_reason(tmp_path):
    lines = [b'{"text": "fine", "id": 7}', b"{", b"[1, 2]", b'{"id": "x"}', b'{"text": null}']
    lines += [b'{"text": "\xff"}', b'{"text": ""}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    reasons = [None, "not JSON", "no text", "no text", "no text", "not UTF-8", None]
    assert only_task(read(tmp_path)) == list(zip(["fine"] + [""] * 6, reasons, strict=True))
    ids = [document.id for document in read(tmp_path)[0]]
    assert ids[::3] == ["7", "x", f"a.jsonl/{sum(map(len, lines)) + 6 - 12}"]


def write_table(path, **columns):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=6)


@pytest.mark.parametrize("world_size", [1, 2, 5, 9])
def test_row_groups_of_a_parquet_file_are_split_among_tasks(tmp_path, world_size):
    write_table(tmp_path / "a.parquet", text=LINES[:20], other=range(20))
    write_table(tmp_path / "b.parquet", text=LINES[20:], other=range(20))
    tasks = read(tmp_path, world_size)
    assert sum(texts(tasks), []) == LINES
    assert [document.id for task in tasks for document in task][-1] == "b.parquet/19"
    assert world_size == 1 or min(map(len, tasks)) < 40


def test_parquet_rows_may_have_an_id_and_no_text(tmp_path):
    write_table(tmp_path / "a.parquet", content=["fine", None, ""], name=["x", "y", None])
    documents = read(tmp_path, text_key="content", id_key="name")
    assert only_task(documents) == [("fine", None), ("", "no content"), ("", None)]
    assert [document.id for document in documents[0]] == ["x", "y", "a.parquet/2"]


def test_a_missing_text_column_is_an_error(tmp_path):
    write_table(tmp_path / "a.parquet", content=["fine"])
    with pytest.raises(ValueError, match=r"cannot read a\.parquet: it has no column text, only content"):
        read(tmp_path)


@pytest.mark.parametrize("world_size", [1, 3])
def test_an_unreadable_parquet_file_becomes_one_document_with_a_reason(tmp_path, world_size):
    write_table(tmp_path / "a.parquet", text=LINES)
    content = (tmp_path / "a.parquet").read_bytes()
    write_table(tmp_path / "b.parquet", text=["fine"])
    for damaged in (b"PAR1 or not" * 1000, content[:-100], content[:-4]):
        (tmp_path / "a.parquet").write_bytes(damaged)
        documents = sum(read(tmp_path, world_size), [])
        assert [(document.text, document.metadata.get("reason"), document.id) for document in documents] == [
            ("", "damaged file", "a.parquet"),
            ("fine", None, "b.parquet/0"),
        ]


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_a_flipped_byte_loses_only_its_parquet_row_group(tmp_path, compression):
    path = tmp_path / "a.parquet"
    options = {"row_group_size": 6, "compression": compression, "use_dictionary": False}
    parquet.write_table(pyarrow.table({"text": LINES}), path, write_page_checksum=True, **options)
    column = parquet.ParquetFile(path).metadata.row_group(2).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 9] ^= 1
    path.write_bytes(content)
    expected = [(line, None) for line in LINES]
    expected[12:18] = [("", "rest of a damaged row group")]
    assert only_task(read(tmp_path)) == expected
    assert read(tmp_path)[0][12].id == "a.parquet/12"


def test_parquet_rows_that_are_not_utf8_have_a_reason(tmp_path):
    path = tmp_path / "a.parquet"
    options = {"compression": "none", "use_dictionary": False}
    parquet.write_table(pyarrow.table({"text": ["good", "café", "fine"]}), path, **options)
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
    assert only_task(read(tmp_path)) == [("good", None), ("", "not UTF-8"), ("fine", None)]


def test_dataset_documents_without_text_are_kept(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "fine", "id": "x"}\n{"text": ""}\n{"text": null}\n')
    documents = list(DatasetReader(str(tmp_path), {"split": "train"}, streaming=True)())
    assert [document.text.strip() for document in documents] == ["fine", "", ""]
    assert documents[0].id == "x"
    assert documents[2].metadata["reason"] == "no text"


def test_files_are_found_by_their_names(tmp_path):
    for name in ("a.txt", "b.txt.gz", "deeper/c.txt", ".hidden.txt", "_SUCCESS", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    found = file_reader(str(tmp_path))
    assert (found.kind, list(found.sizes)) == ("text", ["a.txt", "b.txt.gz", "deeper/c.txt"])
    assert list(file_reader(str(tmp_path), pattern="deeper/*").sizes) == ["deeper/c.txt"]
    assert file_reader(str(tmp_path / "a.txt")).sizes == {"a.txt": 4}
    assert file_reader(str(tmp_path / "notes.md"), "text").sizes == {"notes.md": 4}


def test_files_of_several_kinds_or_of_no_kind_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        file_reader(str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match="has no files that can be read"):
        file_reader(str(tmp_path))
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.jsonl.gz").write_text("text")
    (tmp_path / "c.dat").write_text("text")
    with pytest.raises(ValueError, match=r"files of several kinds, jsonl, text: choose by --kind"):
        file_reader(str(tmp_path))
    assert list(file_reader(str(tmp_path), "text").sizes) == ["a.txt", "c.dat"]


def test_a_changed_time_or_size_changes_only_the_fingerprint_of_that_file(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").write_text("text")
    first = file_reader(str(tmp_path)).fingerprints
    assert file_reader(str(tmp_path)).fingerprints == first
    (tmp_path / "a.txt").write_text("other")
    second = file_reader(str(tmp_path)).fingerprints
    os.utime(tmp_path / "a.txt", (0, 0))
    third = file_reader(str(tmp_path)).fingerprints
    assert first["b.txt"] == second["b.txt"] == third["b.txt"]
    assert len({first["a.txt"], second["a.txt"], third["a.txt"]}) == 3


def test_a_file_that_grew_or_shrank_is_read_to_its_end(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    (tmp_path / "b.txt").write_text("\n".join(LINES))
    reader = file_reader(str(tmp_path))
    for lines in (LINES * 3, LINES[:3]):
        (tmp_path / "a.txt").write_text("\n".join(lines))
        tasks = [list(reader(rank=rank, world_size=7)) for rank in range(7)]
        assert sum(texts(tasks), []) == lines + LINES
