import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.utils.files import read_lines, read_text_file, split_lines, write_json, written_file, written_folder


class Killed(BaseException):
    pass


def test_an_interrupted_write_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "text.txt"
    with written_file(path) as file:
        file.write("old\n")
    with pytest.raises(Killed), written_file(path) as file:
        file.write("half of the n")
        raise Killed
    assert path.read_bytes() == b"old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_error_names_the_file(tmp_path):
    with (
        pytest.raises(OSError, match="No space left on device: '.*results.json'"),
        written_file(tmp_path / "results.json"),
        open("/dev/full", "w") as full,
    ):
        full.write("text")


def test_bytes_and_json_are_written(tmp_path):
    with written_file(tmp_path / "bytes", binary=True) as file:
        file.write(b"\x00\xff")
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"
    write_json(tmp_path / "results.json", {"F1": 0.5, "word": "é"})
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == {"F1": 0.5, "word": "é"}


def test_an_interrupted_folder_is_not_renamed(tmp_path):
    with pytest.raises(Killed), written_folder(tmp_path / "figures") as folder:
        (folder / "1.svg").write_text("<svg/>")
        raise Killed
    assert list(tmp_path.iterdir()) == []
    with written_folder(tmp_path / "figures") as folder:
        (folder / "1.svg").write_text("<svg/>")
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["1.svg"]


def test_leftovers_of_a_killed_process_with_the_same_pid_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # like a process that is killed
    with pytest.raises(Killed), written_folder(tmp_path / "figures") as folder:
        (folder / "old.svg").write_text("<svg/>")
        raise Killed
    monkeypatch.undo()
    with written_folder(tmp_path / "figures") as folder:
        (folder / "1.svg").write_text("<svg/>")
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["1.svg"]


@given(st.lists(st.text(alphabet="a \r\v\f\x1c\x85\u2028\u2029"), max_size=5))
def test_lines_of_texts_and_files_end_only_at_line_feeds(tmp_path_factory, lines):
    text = "\ufeff" + "".join(f"{line.rstrip(chr(13))}\r\n" for line in ["the cat", *lines]) + "\nsleeps"
    expected = ["the cat", *(line.rstrip("\r") for line in lines), "", "sleeps"]
    assert split_lines(text) == expected
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(text.encode())
    assert list(read_text_file(path)) == expected


def test_errors_name_the_unreadable_text_and_line(tmp_path):
    nul = "the letter, line 1, has NUL characters, as UTF-16 without a byte order mark"
    for content, message in [
        (b"the cat\ncaf\xe9\n", "the letter is not UTF-8: byte 0xe9 in line 2"),
        (b"\xef\xbb\xbfcaf\xe9\n", "the letter is not UTF-8: byte 0xe9 in line 1"),
        ("the cat\n".encode("utf-16-le"), nul),
        (b" \n", "the letter is empty"),
    ]:
        with pytest.raises(ValueError, match=message):
            list(read_lines(content.splitlines(keepends=True), "the letter"))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_text_file(tmp_path / "missing.txt")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_text_file(tmp_path)
