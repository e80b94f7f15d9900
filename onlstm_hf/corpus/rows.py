"""The table of trees: a row a sentence, and what its columns are."""

from pyarrow import DataType, Schema, bool_, field, float16, float32, int32, list_, schema, string, struct

# Changes with the meaning or the type of a column; in the metadata of Parquet files and in the manifest.
SCHEMA_VERSION = 2
_SPAN = struct([(name, int32()) for name in ("start", "end", "word_start", "word_end")])
COLUMNS: dict[str, DataType] = {
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


def row_schema(columns: tuple[str, ...]) -> Schema:
    """The Arrow schema of rows with these columns, which are some of `COLUMNS` in their order; see docs/corpus.md."""
    fields = [field(name, COLUMNS[name], nullable=name not in ("document", "position")) for name in columns]
    return schema(fields, metadata={"onlstm_hf.schema_version": str(SCHEMA_VERSION)})
