"""Columns of text in Hugging Face datasets."""

from eval.extras import import_extra


def read_string_column(dataset: str, config: str | None, split: str, column: str) -> list[str]:
    """A column of strings of a Hugging Face dataset, given by its name on the Hub or its folder.

    Raises:
        ValueError: if the dataset cannot be loaded or has no such column of strings.
    """
    datasets = import_extra("datasets")
    try:
        rows = datasets.load_dataset(dataset, config, split=split)
    except Exception as error:  # its own exceptions share no base class
        raise ValueError(f"cannot load the split {split!r} of the dataset {dataset}: {error}") from error
    if column not in rows.column_names:
        raise ValueError(f"{dataset} has no column {column!r}; its columns: {', '.join(rows.column_names)}")
    values = rows[column]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"the column {column!r} of {dataset} has entries that are no text")
    return list(values)
