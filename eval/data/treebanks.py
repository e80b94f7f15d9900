"""Gold trees of files or datasets, read as the options or the models say."""

import argparse
from collections.abc import Mapping, Sequence
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
    """Adds options for the place and the preprocessing of gold trees."""
    parser.add_argument(
        "--treebank",
        nargs="+",
        required=True,
        metavar="PATH",
        help="Penn-style trees: files, folders of .mrg[.gz] files, or a Hugging Face dataset (folder or Hub name)",
    )
    parser.add_argument("--config", metavar="NAME", help="configuration of the dataset")
    parser.add_argument("--split", default="test", help="split of the dataset (%(default)s)")
    parser.add_argument("--column", default="tree", help="column of the dataset that has the trees (%(default)s)")
    reading = parser.add_argument_group(
        "how trees are read", "by default as the models remember from their training, or else as in the papers"
    )
    reading.add_argument(
        "--preset",
        choices=list(PRESETS),
        help="ptb: the papers' protocol; ctb: the Chinese Treebank; universal: punctuation has the tag PUNCT; plain: "
        "every leaf is a word, unchanged",
    )
    reading.add_argument(
        "--dropped-tags",
        type=lambda text: text.split(","),
        metavar="TAG,...",
        help="tags of leaves that are no words; write --dropped-tags=-NONE-,PU where the first one has a hyphen",
    )
    reading.add_argument("--lowercase", action=argparse.BooleanOptionalAction, help="write words in lower case")
    reading.add_argument("--digits", choices=DIGITS, help="write N for runs of digits or for numbers, or keep them")
    reading.add_argument("--function-tag-separators", metavar="CHARACTERS", help="characters that end a label")


class Treebank:
    """The gold trees that the options name, without sentences of punctuation alone.

    They are read when this is made, before any model is loaded; and once more where the model reads treebanks in
    another way than the options or the papers.

    Attributes:
        name: the paths, or that of the dataset.
        trees: the trees.
        by_file: the indices of the trees of each file, by its name without suffix, or its path; empty for a dataset.
        num_left_out: how many sentences have no word.
        preprocessing: how they were read.
    """

    def __init__(self, options: argparse.Namespace):
        self.options, self.name = options, " ".join(options.treebank)
        self._is_of_a_model = False
        self._read(self._chosen(None))

    def read_for(self, name: str, known: Mapping[str, Any] | None) -> list[GoldTree]:
        """The trees as a model reads them.

        Args:
            name: of the model.
            known: its configuration's `treebank_preprocessing`.

        Raises:
            ValueError: if they have no words, or an earlier model reads them in another way.
        """
        preprocessing = self._chosen(known)
        if preprocessing != self.preprocessing:
            if self._is_of_a_model:
                raise ValueError(
                    f"{name} remembers another way to read treebanks than the models before: give --preset"
                )
            self._read(preprocessing)
        self._is_of_a_model = True
        if not self.trees:
            raise ValueError(f"no sentence of {self.name} has a word, read in this way")
        return self.trees

    def _chosen(self, known: Mapping[str, Any] | None) -> Preprocessing:
        options = self.options
        return preprocessing_of(
            options.preset,
            known,
            dropped_tags=options.dropped_tags,
            lowercase=options.lowercase,
            digits=options.digits,
            function_tag_separators=options.function_tag_separators,
        )

    def _read(self, preprocessing: Preprocessing) -> None:
        options = self.options
        if len(options.treebank) > 1 or _has_trees(Path(options.treebank[0])):
            files = treebank_files(options.treebank)
            named = zip(_names(files), (read_treebank(file, preprocessing) for file in files), strict=True)
        else:
            rows = read_string_column(options.treebank[0], options.config, options.split, options.column)
            named = [(None, gold_trees_from_brackets(rows, preprocessing))]
        self.trees, self.by_file, self.num_left_out, self.preprocessing = [], {}, 0, preprocessing
        for name, trees in named:
            kept = [tree for tree in trees if tree.words]
            if name is not None:
                self.by_file[name] = range(len(self.trees), len(self.trees) + len(kept))
            self.trees += kept
            self.num_left_out += len(trees) - len(kept)

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
    """The names of files without the suffix of trees, or their paths where two have the same name."""
    names = [file.name.removesuffix(".gz").removesuffix(".mrg") for file in files]
    return names if len(set(names)) == len(names) else list(map(str, files))


def _has_trees(path: Path) -> bool:
    """Returns whether a path is a file of trees or a folder of such files, and not a dataset."""
    return (
        path.is_file()
        or path.name.lower().endswith(SUFFIXES)
        or any(file.name.lower().endswith(SUFFIXES) for file in path.rglob("*"))
    )
