"""The table of trees: a row a sentence, and what its columns are."""

from pyarrow import DataType, Schema, field, float16, float32, int32, list_, schema, string

# Changes with the meaning or the type of a column; in the metadata of Parquet files and in the manifest.
SCHEMA_VERSION = 1
COLUMNS: dict[str, DataType] = {
    "document": string(),
    "position": int32(),
    "words": list_(string()),
    "spans": list_(list_(int32())),
    "brackets": string(),
    "distances": list_(float16()),
    "log_probability": float32(),
    "reason": string(),
}


def row_schema(columns: tuple[str, ...]) -> Schema:
    """The Arrow schema of rows with these columns, which are some of `COLUMNS` in their order.

    - `document`: the id of the document, and `position`: the number of the sentence in it, from 0.
    - `words`: as they stand in the text.
    - `spans`: `[start, end]` of each constituent of two words or more, half-open, the outermost first; or `brackets`.
    - `distances`: the syntactic distance of each word, in half precision.
    - `log_probability`: natural log probability of the sentence and the `<eos>` after it.
    - `reason`: why there is no tree; every other column but the first two is null then, and this one otherwise.
    """
    fields = [field(name, COLUMNS[name], nullable=name not in ("document", "position")) for name in columns]
    return schema(fields, metadata={"onlstm_hf.schema_version": str(SCHEMA_VERSION)})
