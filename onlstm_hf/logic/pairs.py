"""Pairs of formulas in files, and as a dataset of the `datasets` library."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.files import read_text_file
from .formulas import MAX_OPERATORS, RELATIONS, LogicPair

if TYPE_CHECKING:
    from datasets import DatasetDict

SPLITS = tuple(f"{part}{number}" for part in ("train", "test") for number in range(MAX_OPERATORS + 1))


def read_logic_files(folder: str | os.PathLike) -> dict[str, list[LogicPair]]:
    """Reads the files `train0` ... `train12` and `test0` ... `test12` of Bowman et al. (2015).

    A line is `relation TAB left TAB right`.

    Args:
        folder: where the files are. The number of a file is that of the operators; 12 means 12 or more.

    Returns:
        Pairs by the name of their file.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a line has another form; the message says which line.
    """
    return {name: list(_read_pairs(Path(folder, name))) for name in SPLITS}


def _read_pairs(path: Path) -> Iterator[LogicPair]:
    for number, line in enumerate(read_text_file(path), start=1):
        columns = line.split("\t")
        if len(columns) != 3 or columns[0] not in RELATIONS:
            raise ValueError(
                f"{path}, line {number}: expected `relation TAB left TAB right` with a relation of "
                f"{' '.join(RELATIONS)}, not {line!r}"
            )
        yield LogicPair(*columns)


def build_logic_dataset(splits: dict[str, list[LogicPair]]) -> "DatasetDict":
    """Makes a Hugging Face dataset of pairs, to save with `save_to_disk` or share with `push_to_hub`.

    Args:
        splits: pairs by the name of their split, as `split_by_operators` and `read_logic_files` give them.
            Empty splits are left out.

    Returns:
        For each split a dataset with the columns `left`, `right`, `label` (a `ClassLabel` of the relations) and
        `num_operators`.

    Example:

    ```python
    >>> from onlstm_hf.logic.formulas import generate_logic_pairs, split_by_operators
    >>> from onlstm_hf.logic.pairs import build_logic_dataset
    >>> dataset = build_logic_dataset(split_by_operators(generate_logic_pairs(1000, seed=1)))
    >>> dataset["train3"].features["label"].names
    ['<', '>', '=', '^', '|', '#', 'v']

    ```
    """
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    features = Features(
        {
            "left": Value("string"),
            "right": Value("string"),
            "label": ClassLabel(names=list(RELATIONS)),
            "num_operators": Value("int32"),
        }
    )
    return DatasetDict(
        {
            name: Dataset.from_dict(
                {
                    "left": [pair.left for pair in pairs],
                    "right": [pair.right for pair in pairs],
                    "label": [RELATIONS.index(pair.relation) for pair in pairs],
                    "num_operators": [pair.num_operators for pair in pairs],
                },
                features=features,
            )
            for name, pairs in splits.items()
            if pairs
        }
    )


def read_logic_dataset(dataset: "DatasetDict") -> dict[str, list[LogicPair]]:
    """The inverse of `build_logic_dataset`.

    Raises:
        ValueError: if a split or a column is missing, or the labels are not the relations.
    """
    known = [name for name in SPLITS if name in dataset]
    if not known:
        raise ValueError(f"the dataset has none of the splits train0 ... test{MAX_OPERATORS}: {', '.join(dataset)}")
    splits: dict[str, list[LogicPair]] = {name: [] for name in SPLITS}
    for name in known:
        rows = dataset[name]
        missing = sorted({"left", "right", "label"} - set(rows.column_names))
        if missing:
            raise ValueError(f"the split {name} has no column {', '.join(missing)}; it has {rows.column_names}")
        names = getattr(rows.features["label"], "names", None)
        if names is None or not set(names) <= set(RELATIONS):
            raise ValueError(f"the labels of the split {name} must be a ClassLabel of {' '.join(RELATIONS)}")
        splits[name] = [
            LogicPair(names[label], left, right)
            for label, left, right in zip(rows["label"], rows["left"], rows["right"], strict=True)
        ]
    return splits
