"""Input files of a corpus job."""

from datatrove.io import DataFolder
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression

from .readers import FileReader, JsonlReader, ParquetReader, TextReader

READERS = {reader.kind: reader for reader in (TextReader, JsonlReader, ParquetReader)}


def file_reader(location: str, kind: str | None = None, pattern: str | None = None, **keys: str) -> FileReader:
    """Returns a reader of the files at a location.

    Args:
        location: a file or a folder: a local path, or a URL that fsspec supports, such as `s3://bucket/corpus`.
        kind: one of `READERS`; by default inferred from the file names. Files in a folder whose names indicate
            another kind are skipped.
        pattern: glob pattern for paths in a folder, such as `"**/*.jsonl.gz"`.
        keys: `text_key` and `id_key`, the columns or fields with the text and id of a document.

    Raises:
        FileNotFoundError: if the location does not exist or has no readable files.
        ValueError: if the names indicate several kinds, or if a pattern is given for a single file.
    """
    fs, path = url_to_fs(location)
    if fs.isfile(path):
        if pattern is not None:
            raise ValueError(f"--glob {pattern} needs a folder, and {location} is a file")
        folder, name = DataFolder(fs._parent(path), fs=fs), path.rpartition("/")[2]
        kinds = {name: kind or _kind_of(name)}
    elif fs.isdir(path):
        folder = DataFolder(path, fs=fs)
        names = [name for name in folder.list_files(glob_pattern=pattern) if not _is_hidden(name)]
        kinds = {name: _kind_of(name) or kind for name in names}
    else:
        raise FileNotFoundError(f"there is no file or folder {location}")
    found = sorted({of_file for of_file in kinds.values() if of_file is not None and kind in (None, of_file)})
    if not found:
        raise FileNotFoundError(
            f"{location} has no files that can be read (.txt, .jsonl, .parquet): convert tables of other formats, or "
            f"give the kind of the files with --kind ({', '.join(READERS)})"
        )
    if len(found) > 1:
        raise ValueError(
            f"{location} has files of several kinds ({', '.join(found)}): choose one with --kind, or files with --glob"
        )
    return READERS[found[0]](folder, [name for name in kinds if kinds[name] == found[0]], **keys)


def _kind_of(path: str) -> str | None:
    if infer_compression(path) is not None:
        path = path.rpartition(".")[0]
    return next((kind for kind, reader in READERS.items() if path.endswith(reader.endings)), None)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
