"""The table of trees: its columns, and datatrove writers whose files appear only when a task is complete."""

from typing import IO
from uuid import uuid4

from datatrove.data import Document, DocumentsPipeline
from datatrove.io import DataFolderLike, get_datafolder
from datatrove.pipeline.writers import JsonlWriter, ParquetWriter
from datatrove.pipeline.writers.disk_base import DiskWriter
from pyarrow import bool_, field, float16, float32, int32, list_, schema, string, struct

# Incremented when the meaning or type of a column changes; stored in Parquet metadata and the manifest.
SCHEMA_VERSION = 2
_SPAN = struct([(name, int32()) for name in ("start", "end", "word_start", "word_end")])
COLUMNS = {
    "document": string(),
    "position": int32(),
    "start": int32(),
    "text": string(),
    "words": list_(string()),
    "offsets": list_(list_(int32())),
    "unknown": list_(bool_()),
    "spans": list_(_SPAN),
    "brackets": string(),
    "distances": list_(float16()),
    "log_probability": float32(),
    "reason": string(),
}
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
    fields = [field(name, COLUMNS[name], nullable=name not in ("document", "position")) for name in columns]
    row_schema = schema(fields, metadata={"onlstm_hf.schema_version": str(SCHEMA_VERSION)})
    return _CompleteParquetFiles(
        output, schema=row_schema, compression="zstd", batch_size=ROWS_PER_GROUP, max_file_size=-1
    )
