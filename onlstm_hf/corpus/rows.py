"""Columns of the table of trees, which has one row per sentence."""

from pyarrow import DataType, Schema, bool_, field, float16, float32, int32, list_, schema, string, struct

# Incremented when the meaning or type of a column changes; stored in Parquet metadata and the manifest.
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
    """Returns the Arrow schema of these columns, a subset of `COLUMNS` in the same order; see docs/corpus.md."""
    fields = [field(name, COLUMNS[name], nullable=name not in ("document", "position")) for name in columns]
    return schema(fields, metadata={"onlstm_hf.schema_version": str(SCHEMA_VERSION)})
