"""Input of a corpus run: the files at a place, their kind, and a fingerprint of each."""

from typing import NamedTuple

from datatrove.io import DataFolder
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression

from .readers import FileReader, JsonlReader, ParquetReader, TextReader

KINDS = {
    "text": (".txt", ".text"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet",),
}
READERS = {"text": TextReader, "jsonl": JsonlReader, "parquet": ParquetReader}


class CorpusFiles(NamedTuple):
    """Files of one kind.

    Attributes:
        kind: one of `KINDS`.
        folder: where they are.
        files: their paths in it and their sizes in bytes, in the order in which they are read.
        fingerprints: for each path, what changes with the file's size, and the time or checksum that the file system
            has of it.
    """

    kind: str
    folder: DataFolder
    files: list[tuple[str, int]]
    fingerprints: dict[str, str]

    @property
    def num_bytes(self) -> int:
        return sum(size for _, size in self.files)

    def reader(self, text_key: str = "text", id_key: str = "id") -> FileReader:
        """A reader of these files, which takes text and ids of documents from columns or fields of these names."""
        return READERS[self.kind](self.folder, self.files, text_key=text_key, id_key=id_key)


def find_files(location: str, kind: str | None = None, pattern: str | None = None) -> CorpusFiles:
    """The files at a place.

    Args:
        location: a file or a folder, local or an address that fsspec knows, such as `s3://bucket/corpus`.
        kind: one of `KINDS`; by default what the names of the files say. Files of a folder whose names say another
            kind are left out.
        pattern: only files of a folder whose paths match it, such as `"**/*.jsonl.gz"`.

    Raises:
        FileNotFoundError: if there is no such file or folder, or no file in it.
        ValueError: if the names do not say what the files are, or say different things; if a file has a pattern.
    """
    fs, path = url_to_fs(location)
    if fs.isfile(path):
        if pattern is not None:
            raise ValueError(f"--glob {pattern} needs a folder, and {location} is a file")
        folder = DataFolder(fs._parent(path), fs=fs)
        paths = [path.rpartition("/")[2]]
    elif fs.isdir(path):
        folder = DataFolder(path, fs=fs)
        paths = [name for name in folder.list_files(glob_pattern=pattern) if not _is_hidden(name)]
    else:
        raise FileNotFoundError(f"there is no file or folder {location}")
    if kind is not None and fs.isdir(path):
        paths = [name for name in paths if _kind_of(name) in (kind, None)]
    elif kind is None:
        kinds = {name: known for name in paths if (known := _kind_of(name))}
        if len(set(kinds.values())) > 1:
            found = ", ".join(sorted(set(kinds.values())))
            raise ValueError(
                f"{location} has files of several kinds ({found}): choose one with --kind, or files with --glob"
            )
        paths, kind = list(kinds), next(iter(kinds.values()), None)
    if not paths:
        raise FileNotFoundError(
            f"{location} has no files that can be read: name their kind with --kind, {', '.join(KINDS)}"
        )
    infos = {name: folder.info(name) for name in paths}
    files = [(name, info["size"]) for name, info in infos.items()]
    fingerprints = {name: f"{info['size']} {info.get('ETag', info.get('mtime'))}" for name, info in infos.items()}
    return CorpusFiles(kind, folder, files, fingerprints)


def _kind_of(path: str) -> str | None:
    if infer_compression(path) is not None:
        path = path.rpartition(".")[0]
    return next((kind for kind, endings in KINDS.items() if path.endswith(endings)), None)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
