"""datatrove writers whose files appear only when a task is complete."""

from typing import IO
from uuid import uuid4

from datatrove.data import Document, DocumentsPipeline
from datatrove.io import DataFolderLike, get_datafolder
from datatrove.pipeline.writers import JsonlWriter, ParquetWriter
from datatrove.pipeline.writers.disk_base import DiskWriter

from .rows import row_schema

# In the output folder, where `datasets.load_dataset` ignores it.
UNFINISHED = ".run/unfinished"
ROWS_PER_GROUP = 8192


class _CompleteFiles(DiskWriter):
    """Writes the file of a task under a unique name, and renames it when the task succeeds.

    Files of a killed task are removed when the task runs again. Two processes never write to the same file, even if an
    earlier one is still running.
    """

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        folder = self.output_folder
        for leftover in folder.glob(f"{UNFINISHED}/{rank:05d}-*"):
            folder.rm(leftover, recursive=True)
        attempt = f"{UNFINISHED}/{rank:05d}-{uuid4().hex}"
        unfinished = get_datafolder((folder._join(attempt), folder.fs))
        self.output_mg = unfinished.get_output_file_manager(mode="wb", compression=self.output_mg.compression)
        yield from super().run(data, rank, world_size)
        if files := unfinished.list_files():
            for path in files:
                folder.mv(f"{attempt}/{path}", path)
            folder.rm(attempt, recursive=True)

    def _default_adapter(self, document: Document) -> dict:
        return document.metadata["row"]


class _CompleteParquetFiles(_CompleteFiles, ParquetWriter):
    pass


class _CompleteJsonlFiles(_CompleteFiles, JsonlWriter):
    def _write(self, row: dict, file_handler: IO, _filename: str):
        if row.get("distances") is not None:  # four digits exceed half precision; punctuation has no distance
            row["distances"] = [None if number is None else float(f"{number:.4g}") for number in row["distances"]]
        super()._write({name: value for name, value in row.items() if value is not None}, file_handler, _filename)


def row_writer(output: DataFolderLike, output_format: str, columns: tuple[str, ...]) -> DiskWriter:
    """Returns a writer for the rows of `ParseDocuments` that writes one file per task.

    The format is `"parquet"`, or `"jsonl"` for compressed JSON lines without null values.
    """
    if output_format == "jsonl":
        return _CompleteJsonlFiles(output)
    return _CompleteParquetFiles(
        output,
        schema=row_schema(columns),
        compression="zstd",
        batch_size=ROWS_PER_GROUP,
        max_file_size=-1,
    )
