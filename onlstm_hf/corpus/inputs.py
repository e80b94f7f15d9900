"""Input files of a corpus job, with their kind and fingerprints."""

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
        folder: the folder of the files.
        files: paths in the folder and sizes in bytes, in reading order.
        fingerprints: size, and checksum or modification time, of the file at each path.
    """

    kind: str
    folder: DataFolder
    files: list[tuple[str, int]]
    fingerprints: dict[str, str]

    @property
    def num_bytes(self) -> int:
        return sum(size for _, size in self.files)

    def reader(self, text_key: str = "text", id_key: str = "id") -> FileReader:
        """Returns a reader of these files; the keys name the columns or fields with the text and id of a document."""
        return READERS[self.kind](self.folder, self.files, text_key=text_key, id_key=id_key)


def find_files(location: str, kind: str | None = None, pattern: str | None = None) -> CorpusFiles:
    """Finds the input files at a location.

    Args:
        location: a file or a folder: a local path, or a URL that fsspec supports, such as `s3://bucket/corpus`.
        kind: one of `KINDS`; by default inferred from the file names. Files in a folder whose names indicate
            another kind are skipped.
        pattern: glob pattern for paths in a folder, such as `"**/*.jsonl.gz"`.

    Raises:
        FileNotFoundError: if the location does not exist or has no readable files.
        ValueError: if the names indicate several kinds, or if a pattern is given for a single file.
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
        kinds = {name: kind_of_name for name in paths if (kind_of_name := _kind_of(name))}
        if len(set(kinds.values())) > 1:
            names = ", ".join(sorted(set(kinds.values())))
            raise ValueError(
                f"{location} has files of several kinds ({names}): choose one with --kind, or files with --glob"
            )
        paths, kind = list(kinds), next(iter(kinds.values()), None)
    if not paths:
        raise FileNotFoundError(
            f"{location} has no files that can be read (.txt, .jsonl, .parquet): convert tables of other formats, or "
            f"give the kind of the files with --kind ({', '.join(KINDS)})"
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
