"""Minimal pairs for language models: Marvin & Linzen (2018) and BLiMP (Warstadt et al. 2020)."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from eval.task import import_extra
from onlstm_hf.utils.files import read_lines


class Item(NamedTuple):
    """One item of a test.

    Attributes:
        condition: the set of the item, or a part of that set.
        group: name of the group that is reported together.
        sentences: the grammatical sentence, for negative polarity items the intrusive one, and the ungrammatical one.
    """

    condition: str
    group: str
    sentences: tuple[str, ...]


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
BLIMP_COLUMNS = ("UID", "linguistics_term", "sentence_good", "sentence_bad")
# BLiMP's files name one phenomenon that its paper counts as part of another.
BLIMP_PHENOMENA = {"s-selection": "argument_structure"}


def load_marvin_linzen(source: str) -> list[Item]:
    """Loads the items of Marvin & Linzen's sets.

    Args:
        source: a folder with one file per set, or a Hugging Face dataset with one configuration per set. The files are
            `NAME.tsv` or `NAME.tsv.gz`, with the columns condition, grammatical, (intrusive,) ungrammatical.

    Raises:
        FileNotFoundError, ValueError: if there are no such sets, or a set has an unknown name or other columns.
    """
    group_of_set = {
        name: group for groups in MARVIN_LINZEN_SETS.values() for group, names in groups.items() for name in names
    }
    items = []
    for name, rows in _read_sets(source, ".tsv", _read_tsv, ("condition", "grammatical", "ungrammatical")).items():
        if name not in group_of_set:
            raise ValueError(f"{source}: {name} is not one of Marvin & Linzen's sets: {', '.join(group_of_set)}")
        for row in rows:
            sentences = tuple(row[key] for key in ("grammatical", "intrusive", "ungrammatical") if row.get(key))
            items.append(Item(f"{name}/{row['condition']}", group_of_set[name], sentences))
    return items


def load_blimp(source: str) -> list[Item]:
    """Loads the pairs of BLiMP from a folder of `NAME.jsonl[.gz]`, or from a dataset such as `nyu-mll/blimp`.

    See `load_marvin_linzen` for the errors.
    """
    return [
        Item(
            row["UID"],
            BLIMP_PHENOMENA.get(row["linguistics_term"], row["linguistics_term"]),
            (row["sentence_good"], row["sentence_bad"]),
        )
        for rows in _read_sets(source, ".jsonl", _read_jsonl, BLIMP_COLUMNS).values()
        for row in rows
    ]


def _read_sets(
    source: str, suffix: str, read: Callable[[Iterable[str]], Iterable[dict]], columns: Sequence[str]
) -> dict[str, list[dict]]:
    """Returns the rows of each file in a folder, or of each configuration of a dataset, by name."""
    folder = Path(source)
    if not folder.is_dir():
        return _read_configurations(source, columns)
    files = sorted([*folder.glob(f"*{suffix}"), *folder.glob(f"*{suffix}.gz")])
    if not files:
        raise FileNotFoundError(f"{source} has no files that end in {suffix} or {suffix}.gz")
    sets = {}
    for path in files:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            try:
                sets[path.name.removesuffix(".gz").removesuffix(suffix)] = list(read(read_lines(file, "the file")))
            except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{path}: {error}") from error
    return sets


def _read_configurations(source: str, columns: Sequence[str]) -> dict[str, list[dict]]:
    datasets = import_extra("datasets")
    try:
        names = datasets.get_dataset_config_names(source)
        sets = {name: datasets.load_dataset(source, name, split="train") for name in names}
    except Exception as error:  # exceptions of `datasets` share no base class
        raise ValueError(f"{source} is not a folder and cannot be loaded as a dataset: {error}") from error
    for name, rows in sets.items():
        missing = [column for column in columns if column not in rows.column_names]
        if missing:
            raise ValueError(
                f"{name} of {source} has no column {missing[0]!r}; there are {', '.join(rows.column_names)}"
            )
    return {name: list(rows) for name, rows in sets.items()}


def _read_tsv(lines: Iterable[str]) -> Iterable[dict]:
    for number, line in enumerate(lines, start=1):
        condition, *sentences = line.split("\t")
        if len(sentences) not in (2, 3) or not all(sentences):
            raise ValueError(
                f"line {number} has {len(sentences)} sentences, expected condition, grammatical, (intrusive,) "
                "ungrammatical, with tabs between them"
            )
        yield {
            "condition": condition,
            "grammatical": sentences[0],
            "intrusive": sentences[1] if len(sentences) == 3 else None,
            "ungrammatical": sentences[-1],
        }


def _read_jsonl(lines: Iterable[str]) -> Iterable[dict]:
    for number, line in enumerate(lines, start=1):
        row = json.loads(line)
        missing = [column for column in BLIMP_COLUMNS if column not in row]
        if missing:
            raise ValueError(f"line {number} lacks {', '.join(missing)}")
        yield row
