"""Readers that split large files among tasks, and yield a document with a reason for each unreadable part.

datatrove's readers read each file in a single task. They drop documents without text, lines that are not JSON, and
the rest of a file after a byte that is not UTF-8. They do not support plain text.
"""

import codecs
import io
import lzma
import math
import re
import sys
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import orjson
from datatrove.data import Document, DocumentsPipeline
from datatrove.io import DataFolder
from datatrove.pipeline.readers import HuggingFaceDatasetReader
from datatrove.pipeline.readers.base import BaseReader
from fsspec.compression import compr, register_compression
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression
from loguru import logger
from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# fsspec may otherwise use zstandard, which stops without an error after the first frame or at a truncated frame.
register_compression("zstd", zstd.ZstdFile, "zst", force=True)

# Longer lines are skipped. At most this many bytes are read at once.
MAX_LINE_BYTES = 1 << 24
TOO_LONG = f"longer than {MAX_LINE_BYTES >> 20} MiB"
# The errors of the formats for damaged and truncated files share no base class. bz2, gzip and pyarrow also raise
# OSErrors without an `errno`; system errors have one.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, ArrowException)
# Small, because one row may hold a whole book.
ROWS_PER_BATCH = 16


class FileReader(BaseReader):
    """Reads documents from files; several tasks share a file that can be split.

    Each task gets an equal share of the bytes of all files, and reads the documents that begin in it. A compressed
    file belongs to the task in whose share it begins. The default id of a document is its file and its place there.
    `metadata["share_read"]` is the share of the task that has been read. An unreadable part of a damaged file becomes
    a document with a reason; the error is in the log of the task.

    Attributes:
        sizes: size of each file in bytes, which defines the shares. A file that has changed is still read to its end.
        fingerprints: size, and checksum or modification time, of each file.
    """

    kind: str
    endings: tuple[str, ...]  # of file names, before the ending of a compression

    def __init__(self, data_folder: DataFolder, paths: list[str], **options):
        super().__init__(**options)
        self.data_folder = data_folder
        infos = {path: data_folder.info(path) for path in paths}
        self.sizes = {path: info["size"] for path, info in infos.items()}
        self.fingerprints = {
            path: f"{info['size']} {info.get('ETag', info.get('mtime'))}" for path, info in infos.items()
        }

    @abstractmethod
    def read_part(self, file: BinaryIO, path: str, start: int, end: float) -> Iterator[Document]:
        """Yields the documents that begin between two bytes of a file; `end` is infinite for the last part."""

    def run(self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        if data:
            yield from data
        parts = list(file_parts(self.sizes, rank, world_size))
        size, read = sum(end - start for _, start, end in parts) or 1, 0
        for path, start, end in parts:
            self.stat_update("input_files")
            with self.data_folder.open(path, "rb") as file:
                for document in self.read_part(file, path, start, end if end < self.sizes[path] else math.inf):
                    document.metadata["share_read"] = (read + min(file.tell(), end) - start) / size
                    self.update_doc_stats(document)
                    yield document
            read += end - start


class TextReader(FileReader):
    """Reads each line as a document. The place of a line is its byte offset in the uncompressed text."""

    name = "📄 Text"
    kind, endings = "text", (".txt", ".text")

    def read_part(self, file: BinaryIO, path: str, start: int, end: float) -> Iterator[Document]:
        compression = infer_compression(path)
        file = io.BufferedReader(file) if compression is None else compr[compression](file, mode="rb")
        if start > 0:  # a line that begins earlier belongs to the previous part
            file.seek(start - 1)
            _skip_line(file)
        while (offset := file.tell()) < end:
            place = f"{path}/{offset}"
            try:
                line = file.readline(MAX_LINE_BYTES + 1)
                if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    _skip_line(file)
            except Exception as error:
                yield damaged(error, place, "rest of a damaged file")
                return
            if not line:
                return
            if len(line) > MAX_LINE_BYTES:
                yield unreadable(place, TOO_LONG)
                continue
            if offset == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                yield self.parse_line(line.rstrip(b"\r\n"), place)
            except UnicodeDecodeError:
                yield unreadable(place, "not UTF-8")

    def parse_line(self, line: bytes, place: str) -> Document:
        return Document(line.decode(), place)


class JsonlReader(TextReader):
    """Reads the JSON object of each line as a document."""

    name = "🐿 Jsonl"
    kind, endings = "jsonl", (".jsonl", ".ndjson", ".json")

    def parse_line(self, line: bytes, place: str) -> Document:
        try:
            content = orjson.loads(line)
        except orjson.JSONDecodeError:
            line.decode()
            return unreadable(place, "not JSON")
        return document_of(content if isinstance(content, dict) else {}, self.text_key, self.id_key, place)


class ParquetReader(FileReader):
    """Reads each row of Parquet files as a document. Files are cut between row groups; a row's place is its number."""

    name = "📒 Parquet"
    kind, endings = "parquet", (".parquet",)

    def read_part(self, file: BinaryIO, path: str, start: int, end: float) -> Iterator[Document]:
        try:
            table = ParquetFile(file, page_checksum_verification=True)
            names = table.schema_arrow.names
        except Exception as error:
            document = damaged(error, path, "damaged file")
            if start == 0:
                yield document
            return
        if self.text_key not in names:
            raise ValueError(f"cannot read {path}: it has no column {self.text_key}, only {', '.join(names)}")
        first_row = 0
        for index in range(table.num_row_groups):
            group = table.metadata.row_group(index)
            if start <= group.column(0).data_page_offset < end:
                yield from self._read_group(table, index, path, first_row)
            first_row += group.num_rows

    def _read_group(self, table: ParquetFile, index: int, path: str, row: int) -> Iterator[Document]:
        """Yields the documents of a row group; `row` is the number of its first row in the file."""
        columns = [name for name in table.schema_arrow.names if name in (self.text_key, self.id_key)]
        try:
            for batch in table.iter_batches(ROWS_PER_BATCH, row_groups=[index], columns=columns):
                for values in zip(*batch.columns, strict=True):
                    place = f"{path}/{row}"
                    try:
                        content = {name: value.as_py() for name, value in zip(columns, values, strict=True)}
                        yield document_of(content, self.text_key, self.id_key, place)
                    except UnicodeDecodeError:
                        yield unreadable(place, "not UTF-8")
                    row += 1
        except Exception as error:
            yield damaged(error, f"{path}/{row}", "rest of a damaged row group")


class DatasetReader(HuggingFaceDatasetReader):
    """datatrove's reader of Hugging Face datasets, which here keeps documents without text."""

    def _default_adapter(self, data: dict, path: str, id_in_file: int | str) -> dict:
        document = document_of(data, self.text_key, self.id_key, f"{path}/{id_in_file}")
        # The base class drops documents with an empty text.
        return {"text": document.text or "\n", "id": document.id, "metadata": document.metadata}


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
        names = folder.list_files(glob_pattern=pattern)
        names = [name for name in names if not re.search(r"(^|/)[._]", name)]  # without hidden files
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
        raise ValueError(f"{location} has files of several kinds, {', '.join(found)}: choose by --kind or --glob")
    return READERS[found[0]](folder, [name for name in kinds if kinds[name] == found[0]], **keys)


def _kind_of(path: str) -> str | None:
    if infer_compression(path) is not None:
        path = path.rpartition(".")[0]
    return next((kind for kind, reader in READERS.items() if path.endswith(reader.endings)), None)


def file_parts(sizes: Mapping[str, int], rank: int, world_size: int) -> Iterator[tuple[str, int, int]]:
    """Yields the parts of files that a task reads: path, start and end byte (exclusive).

    Each byte belongs to exactly one task. The tasks get about equally many bytes. Compressed files are not split.
    """
    total = sum(sizes.values())
    first, last = total * rank // world_size, total * (rank + 1) // world_size
    begin = 0
    for path, size in sizes.items():
        end = begin + size
        if infer_compression(path) is not None:
            if first <= begin < last:
                yield path, 0, size
        elif max(begin, first) < min(end, last):
            yield path, max(begin, first) - begin, min(end, last) - begin
        begin = end


def document_of(content: Mapping, text_key: str, id_key: str, place: str) -> Document:
    """Returns the document of a JSON object or table row, with a reason if it has no text."""
    text, name = content.get(text_key), content.get(id_key)
    place = place if name is None else str(name)
    return Document(text, place) if isinstance(text, str) else unreadable(place, f"no {text_key}")


def unreadable(place: str, reason: str) -> Document:
    """Returns a document without text; `ParseDocuments` writes the reason into its row."""
    return Document("", place, metadata={"reason": reason})


def damaged(error: Exception, place: str, reason: str) -> Document:
    """Returns the document of a part that cannot be read. Raises an error that damage does not cause."""
    if not isinstance(error, DAMAGE) or (isinstance(error, OSError) and error.errno is not None):
        raise error
    logger.warning(f"{place} cannot be read ({reason}): {error}")
    return unreadable(place, reason)


def _skip_line(file: BinaryIO) -> None:
    while (chunk := file.readline(1 << 20)) and not chunk.endswith(b"\n"):
        pass
