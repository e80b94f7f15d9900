"""Gold trees from files or datasets, preprocessed as the options or the models require."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from eval.data.texts import read_string_column
from onlstm_hf.trees.treebank import (
    DIGITS,
    PRESETS,
    GoldTree,
    Preprocessing,
    gold_trees_from_brackets,
    preprocessing_of,
    read_treebank,
    treebank_files,
)

SUFFIXES = (".mrg", ".mrg.gz")
PAPERS_PROTOCOL = "words only (no punctuation, currency signs, empty elements), lower case, N for digits"


def add_treebank_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for the source and the preprocessing of gold trees."""
    parser.add_argument(
        "--treebank",
        nargs="+",
        required=True,
        metavar="PATH",
        help="Penn-style trees: files, folders of .mrg[.gz] files, or a Hugging Face dataset (folder or Hub name)",
    )
    parser.add_argument("--config", metavar="NAME", help="configuration of the dataset")
    parser.add_argument("--split", default="test", help="split of the dataset (%(default)s)")
    parser.add_argument("--column", default="tree", help="column of the dataset with the trees (%(default)s)")
    reading = parser.add_argument_group(
        "preprocessing of trees", "default: that of the model's training if it is stored, else that of the papers"
    )
    reading.add_argument(
        "--preset",
        choices=list(PRESETS),
        help="ptb: the papers' protocol; ctb: Chinese Treebank; universal: punctuation has the tag PUNCT; plain: "
        "every leaf is an unchanged word",
    )
    reading.add_argument(
        "--dropped-tags",
        type=lambda text: text.split(","),
        metavar="TAG,...",
        help="tags of leaves that are not words; with a hyphen at the start write --dropped-tags=-NONE-,PU",
    )
    reading.add_argument("--lowercase", action=argparse.BooleanOptionalAction, help="lower-case the words")
    reading.add_argument("--digits", choices=DIGITS, help="replace runs of digits or numbers by N, or keep them")
    reading.add_argument("--function-tag-separators", metavar="CHARACTERS", help="characters that end a label")


class Treebank:
    """Gold trees that the options name, without sentences of punctuation alone.

    The constructor reads the trees, so that errors appear before a model is loaded. They are read again if a model
    requires other preprocessing.
    """

    name: str  # the paths, or the name of the dataset
    trees: list[GoldTree]
    by_file: dict[str, range]  # indices of the trees of each file by its name; empty for a dataset
    num_left_out: int  # sentences without words
    preprocessing: Preprocessing

    def __init__(self, options: argparse.Namespace):
        self.options, self.name = options, " ".join(options.treebank)
        self._is_fixed_by_model = False
        self._read(self._chosen(None))

    def read_for(self, name: str, stored: Mapping[str, Any] | None) -> list[GoldTree]:
        """Returns the trees with the preprocessing of a model, `treebank_preprocessing` of its configuration."""
        preprocessing = self._chosen(stored)
        if preprocessing != self.preprocessing:
            if self._is_fixed_by_model:
                raise ValueError(
                    f"{name} was trained with another preprocessing of treebanks than the models before: give --preset"
                )
            self._read(preprocessing)
        self._is_fixed_by_model = True
        if not self.trees:
            raise ValueError(f"no sentence of {self.name} has a word with this preprocessing")
        return self.trees

    def _chosen(self, stored: Mapping[str, Any] | None) -> Preprocessing:
        overrides = {field.name: getattr(self.options, field.name) for field in fields(Preprocessing)}
        return preprocessing_of(self.options.preset, stored, **overrides)

    def _read(self, preprocessing: Preprocessing) -> None:
        options, self.by_file, self.preprocessing = self.options, {}, preprocessing
        if len(options.treebank) > 1 or _has_trees(Path(options.treebank[0])):
            trees, start = [], 0
            files = treebank_files(options.treebank)
            for name, file in zip(_names(files), files, strict=True):
                trees += read_treebank(file, preprocessing)
                end = sum(bool(tree.words) for tree in trees)
                self.by_file[name], start = range(start, end), end
        else:
            rows = read_string_column(options.treebank[0], options.config, options.split, options.column)
            trees = gold_trees_from_brackets(rows, preprocessing)
        self.trees = [tree for tree in trees if tree.words]
        self.num_left_out = len(trees) - len(self.trees)

    @property
    def is_read_as_in_the_papers(self) -> bool:
        return self.preprocessing == Preprocessing()

    def describe(self) -> str:
        """Returns a short description of the preprocessing."""
        if self.is_read_as_in_the_papers:
            return PAPERS_PROTOCOL
        preprocessing = self.preprocessing
        dropped = ", ".join(sorted(preprocessing.dropped_tags))
        parts = [f"words without the tags {dropped}" if dropped else "every leaf a word"]
        parts.append("lower case" if preprocessing.lowercase else "case as written")
        parts.append({"runs": "N for digits", "numbers": "N for numbers", "keep": "digits kept"}[preprocessing.digits])
        return ", ".join(parts)


def _names(files: Sequence[Path]) -> list[str]:
    """Returns the names of files without suffix, or their paths if two files have the same name."""
    names = [file.name.removesuffix(".gz").removesuffix(".mrg") for file in files]
    return names if len(set(names)) == len(names) else list(map(str, files))


def _has_trees(path: Path) -> bool:
    """Returns whether a path is a file of trees or a folder of such files, and not a dataset."""
    return path.is_file() or any(file.name.lower().endswith(SUFFIXES) for file in (path, *path.rglob("*")))
