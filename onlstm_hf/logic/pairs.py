"""Reading of files of formula pairs, and conversion to and from datasets."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.files import read_text_file
from .formulas import MAX_OPERATORS, RELATIONS, LogicPair

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

SPLITS = tuple(f"{part}{number}" for part in ("train", "test") for number in range(MAX_OPERATORS + 1))


def read_logic_files(folder: str | os.PathLike) -> dict[str, list[LogicPair]]:
    """Reads the files `train0` ... `train12` and `test0` ... `test12` of Bowman et al. (2015).

    A line is `relation TAB left TAB right`. The number in a file name is the number of operators; 12 means 12 or more.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a line is malformed; it names the line.
    """
    return {name: list(_read_pairs(Path(folder, name))) for name in SPLITS}


def _read_pairs(path: Path) -> Iterator[LogicPair]:
    for number, line in enumerate(read_text_file(path), start=1):
        columns = line.split("\t")
        if len(columns) != 3 or columns[0] not in RELATIONS:
            expected = f"`relation TAB left TAB right` with a relation of {' '.join(RELATIONS)}"
            raise ValueError(f"{path}, line {number}: expected {expected}, not {line!r}")
        yield LogicPair(*columns)


def build_logic_dataset(splits: dict[str, list[LogicPair]]) -> "DatasetDict":
    """Builds a Hugging Face dataset from the result of `split_by_operators` or `read_logic_files`.

    Its columns are `left`, `right`, `label` (a `ClassLabel` of the relations) and `num_operators`. Empty splits are
    omitted.

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

    text, number = Value("string"), Value("int32")
    label = ClassLabel(names=list(RELATIONS))
    features = Features({"left": text, "right": text, "label": label, "num_operators": number})

    def row(pair: LogicPair) -> dict[str, str | int]:
        return {"left": pair.left, "right": pair.right, "label": pair.relation, "num_operators": pair.num_operators}

    return DatasetDict(
        {name: Dataset.from_list(list(map(row, pairs)), features) for name, pairs in splits.items() if pairs}
    )


def read_logic_dataset(dataset: "DatasetDict") -> dict[str, list[LogicPair]]:
    """Converts a dataset of `build_logic_dataset` to pairs by split name.

    Raises:
        ValueError: if all splits or a column are missing, or the labels are not the relations.
    """
    if not any(name in dataset for name in SPLITS):
        raise ValueError(f"the dataset has none of the splits train0 ... test{MAX_OPERATORS}: {', '.join(dataset)}")
    return {name: _pairs_of(dataset[name], name) if name in dataset else [] for name in SPLITS}


def _pairs_of(rows: "Dataset", split: str) -> list[LogicPair]:
    relations = getattr(rows.features.get("label"), "names", None)
    if relations is None or not set(relations) <= set(RELATIONS) or not {"left", "right"} <= set(rows.features):
        raise ValueError(
            f"the split {split} must have the columns left, right and label, a ClassLabel of {' '.join(RELATIONS)}; "
            f"it has {rows.features}"
        )
    columns = rows["label"], rows["left"], rows["right"]
    return [LogicPair(relations[label], left, right) for label, left, right in zip(*columns, strict=True)]
