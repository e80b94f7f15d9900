"""Minimal pairs for language models: Marvin & Linzen (2018) and BLiMP (Warstadt et al. 2020)."""

import csv
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from eval.task import import_extra
from onlstm_hf.utils.dataset_errors import reported_dataset_errors


class Item(NamedTuple):
    """One item of a test."""

    condition: str  # the set of the item, or a part of that set
    group: str  # name of the group that is reported together
    sentences: tuple[str, ...]  # the grammatical, for negative polarity items the intrusive, and the ungrammatical one


# Sets of each test case in Table 3 of the ON-LSTM paper (Shen et al. 2019), in the sections and order of that table.
MARVIN_LINZEN_SETS = {
    "Short-term dependency": {
        "agreement: simple": ["simple_agrmt"],
        "agreement: in a sentential complement": ["sent_comp"],
        "agreement: short VP coordination": ["vp_coord"],
        "agreement: in an object relative clause": ["obj_rel_within_anim", "obj_rel_within_inanim"],
        "agreement: in an object relative (no that)": ["obj_rel_no_comp_within_anim", "obj_rel_no_comp_within_inanim"],
        "reflexives: simple": ["simple_reflexives"],
        "reflexives: in a sentential complement": ["reflexive_sent_comp"],
        "NPIs: simple": ["simple_npi_anim", "simple_npi_inanim"],
    },
    "Long-term dependency": {
        "agreement: long VP coordination": ["long_vp_coord"],
        "agreement: across a prepositional phrase": ["prep_anim", "prep_inanim"],
        "agreement: across a subject relative clause": ["subj_rel"],
        "agreement: across an object relative clause": ["obj_rel_across_anim", "obj_rel_across_inanim"],
        "agreement: across an object relative (no that)": [
            "obj_rel_no_comp_across_anim",
            "obj_rel_no_comp_across_inanim",
        ],
        "reflexives: across a relative clause": ["reflexives_across"],
        "NPIs: across a relative clause": ["npi_across_anim", "npi_across_inanim"],
    },
}
MARVIN_LINZEN_COLUMNS = ("condition", "grammatical", "ungrammatical")
BLIMP_COLUMNS = ("UID", "linguistics_term", "sentence_good", "sentence_bad")
# BLiMP's files name one phenomenon that its paper counts as part of another.
BLIMP_PHENOMENA = {"s-selection": "argument_structure"}


def load_marvin_linzen(source: str) -> list[Item]:
    """Loads Marvin & Linzen's sets from a folder with a file for each, or a dataset with a configuration for each.

    The files `NAME.tsv[.gz]` have the columns condition, grammatical, (intrusive,) ungrammatical.
    """
    group_of_set = {
        name: group for groups in MARVIN_LINZEN_SETS.values() for group, names in groups.items() for name in names
    }
    items = []
    for name, rows in _read_sets(source, ".tsv", _read_tsv, MARVIN_LINZEN_COLUMNS).items():
        if name not in group_of_set:
            raise ValueError(f"{source}: {name} is not one of Marvin & Linzen's sets: {', '.join(group_of_set)}")
        for row in rows.to_dict("records"):
            sentences = tuple(row[key] for key in ("grammatical", "intrusive", "ungrammatical") if row.get(key))
            items.append(Item(f"{name}/{row['condition']}", group_of_set[name], sentences))
    return items


def load_blimp(source: str) -> list[Item]:
    """Loads the pairs of BLiMP from a folder of `NAME.jsonl[.gz]`, or from a dataset such as `nyu-mll/blimp`."""
    read = partial(pd.read_json, lines=True, dtype=False, encoding="utf-8-sig")
    sets = _read_sets(source, ".jsonl", read, BLIMP_COLUMNS).values()
    return [
        Item(condition, BLIMP_PHENOMENA.get(phenomenon, phenomenon), (good, bad))
        for rows in sets
        for condition, phenomenon, good, bad in rows[list(BLIMP_COLUMNS)].itertuples(index=False)
    ]


def _read_sets(
    source: str, suffix: str, read: Callable[[Path], pd.DataFrame], columns: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Returns the rows of each file in a folder, or of each configuration of a dataset, by name."""
    folder, sets = Path(source), {}
    if folder.is_dir():
        files = sorted([*folder.glob(f"*{suffix}"), *folder.glob(f"*{suffix}.gz")])
        if not files:
            raise FileNotFoundError(f"{source} has no files that end in {suffix} or {suffix}.gz")
        for path in files:
            try:
                sets[path.name.removesuffix(".gz").removesuffix(suffix)] = read(path)
            except (ValueError, EOFError, OSError, zlib.error) as error:
                raise ValueError(f"{path}: {error}") from error
    else:
        datasets = import_extra("datasets")
        with reported_dataset_errors(source, f"the dataset {source}"):
            for name in datasets.get_dataset_config_names(source):
                sets[name] = datasets.load_dataset(source, name, split="train").to_pandas()
    for name, rows in sets.items():
        if missing := [column for column in columns if column not in rows.columns]:
            raise ValueError(f"{name} of {source} has no column {missing[0]!r}; there are {', '.join(rows.columns)}")
    return sets


def _read_tsv(path: Path) -> pd.DataFrame:
    rows = pd.read_csv(
        path, sep="\t", header=None, dtype=str, quoting=csv.QUOTE_NONE, keep_default_na=False, encoding="utf-8-sig"
    )
    if rows.shape[1] not in (3, 4):
        raise ValueError(
            f"the file has {rows.shape[1]} columns, expected condition, grammatical, (intrusive,) ungrammatical"
        )
    return rows.set_axis(["condition", "grammatical", *["intrusive"][: rows.shape[1] - 3], "ungrammatical"], axis=1)
