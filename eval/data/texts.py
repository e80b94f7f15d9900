"""Reading of sentences from text files and Hugging Face datasets."""

import os

from eval.task import import_extra
from onlstm_hf.utils.dataset_errors import reported_dataset_errors
from onlstm_hf.utils.files import read_text_file


def read_sentences(path: str | os.PathLike) -> list[str]:
    """Returns the non-blank lines of a UTF-8 text file; for the errors see `read_text_file`."""
    return [line for line in read_text_file(path) if line.strip()]


def read_string_column(dataset: str, config: str | None, split: str, column: str) -> list[str]:
    """Returns a column of strings of a Hugging Face dataset, given by its Hub name or folder."""
    datasets = import_extra("datasets")
    with reported_dataset_errors(dataset, f"the split {split!r} of the dataset {dataset}"):
        rows = datasets.load_dataset(dataset, config, split=split)
    if column not in rows.column_names:
        raise ValueError(f"{dataset} has no column {column!r}; its columns: {', '.join(rows.column_names)}")
    values = rows[column]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"the column {column!r} of {dataset} has entries that are not text")
    return list(values)
