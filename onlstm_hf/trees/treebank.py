"""Gold trees from Penn-style treebanks: `.mrg` files or bracket strings."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..utils.files import read_lines
from .brackets import BracketNode, escape_leaf, read_brackets, refuse_discontinuous, unescape_leaf, write_nltk_tree
from .induced_tree import InducedTree, outermost_first

PUNCTUATION_TAGS = frozenset({",", ".", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP"})
CURRENCY_TAGS = frozenset({"$", "#", "C$", "A$"})
EMPTY_ELEMENT_TAGS = frozenset({"-NONE-"})
DIGITS = ("runs", "numbers", "keep")  # values of `Preprocessing.digits`
ROOT_LABELS = frozenset({"TOP", "ROOT", "S1", "VROOT"})  # in upper or lower case
NEED_LABELS = (
    "gold trees need labels (`onlstm-hf compare --preset unlabelled` takes trees without them, "
    "`InducedTree.from_bracket` reads one)"
)


@dataclass(frozen=True)
class Preprocessing:
    """Rules that choose the words of a treebank and normalise words and labels.

    The defaults are the papers' protocol for the Wall Street Journal: no punctuation, currency signs and empty
    elements, lower case, and `N` for each run of digits (`1.5` becomes `N.N`).

    Args:
        dropped_tags: leaves with these tags are dropped; with `EMPTY_ELEMENT_TAGS` the punctuation is kept.
        lowercase: whether words are lower-cased.
        digits: `"runs"` replaces each run of digits by `N`, like the authors' code for parsing. `"numbers"` replaces
            only words that are numbers (`1.5`, `2,700`, `1\\/2`, not `10-year`), like the Penn Treebank text for
            language modelling. `"keep"` changes nothing.
        function_tag_separators: labels are cut at the first of these characters: `NP-SBJ-1` and `NP=2` become `NP`.
            The empty string keeps labels unchanged.

    Raises:
        ValueError: if a value is of another kind, or the digits are none of these.
    """

    dropped_tags: frozenset[str] = PUNCTUATION_TAGS | CURRENCY_TAGS | EMPTY_ELEMENT_TAGS
    lowercase: bool = True
    digits: str = "runs"
    function_tag_separators: str = "-="

    def __post_init__(self):
        if isinstance(self.dropped_tags, str) or not all(isinstance(tag, str) for tag in self.dropped_tags):
            raise ValueError(f"dropped_tags must be a list of tags, got {self.dropped_tags!r}")
        if not isinstance(self.lowercase, bool) or not isinstance(self.function_tag_separators, str):
            values = f"{self.lowercase!r} and {self.function_tag_separators!r}"
            raise ValueError(f"lowercase must be true or false, and function_tag_separators a string, not {values}")
        if self.digits not in DIGITS:
            raise ValueError(f'digits must be "runs", "numbers" or "keep", got {self.digits!r}')
        object.__setattr__(self, "dropped_tags", frozenset(self.dropped_tags))

    def word(self, text: str) -> str:
        """Normalises the text of a leaf."""
        if self.lowercase:
            text = text.lower()
        if self.digits == "runs":
            return re.sub(r"[0-9]+", "N", text)
        if self.digits == "numbers" and re.fullmatch(r"[0-9][0-9.,:/\\-]*", text):
            return "N"
        return text

    def label(self, text: str) -> str:
        """Removes the function tags of a label."""
        separators = [text.find(separator) for separator in self.function_tag_separators]
        return text[: min((position for position in separators if position > 0), default=len(text))]

    def to_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return asdict(self) | {"dropped_tags": sorted(self.dropped_tags)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Reverses `to_dict`. Missing fields follow the papers' protocol; unknown ones raise a `ValueError`."""
        if unknown := sorted(set(values) - {item.name for item in fields(cls)}):
            raise ValueError(f"the preprocessing of a treebank has no {', '.join(unknown)}")
        return cls(**values)


# Keeps every leaf as a word, and words and labels unchanged.
AS_WRITTEN = Preprocessing(dropped_tags=frozenset(), lowercase=False, digits="keep", function_tag_separators="")
# The papers' protocol, the tags of the Chinese Treebank, the punctuation tag of Universal Dependencies for any
# language, and trees without anything to drop.
PRESETS = {
    "ptb": Preprocessing(),
    "ctb": Preprocessing(dropped_tags=frozenset({"PU"}) | EMPTY_ELEMENT_TAGS, lowercase=False, digits="keep"),
    "universal": Preprocessing(dropped_tags=frozenset({"PUNCT"}) | EMPTY_ELEMENT_TAGS, digits="keep"),
    "plain": AS_WRITTEN,
}


def preprocessing_of(
    preset: str | None, of_model: Mapping[str, Any] | None = None, **overrides: Iterable[str] | bool | str | None
) -> Preprocessing:
    """Returns the preprocessing of a treebank for a model.

    Args:
        preset: one of `PRESETS`, or `None`.
        of_model: fields from `to_dict`, such as `treebank_preprocessing` of the model's configuration; used without a
            preset. Missing fields follow the papers' protocol.
        overrides: other values of fields; `None` means unchanged. Unknown names and invalid values are refused.
    """
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"unknown treebank preset {preset!r}; there are {', '.join(PRESETS)}")
    values = dict(of_model or {}) if preset is None else PRESETS[preset].to_dict()
    values |= {name: value for name, value in overrides.items() if value is not None}
    return Preprocessing.from_dict(values)


@dataclass(frozen=True)
class GoldTree:
    """The words of a sentence and its labelled constituents.

    Attributes:
        words: the preprocessed words.
        constituents: `(label, start, end)` of each bracket over two words or more, `words[start:end]`, in the order of
            opening brackets. Brackets over the same words, `(S (VP ...))`, are all included.

    Raises:
        ValueError: for a constituent outside the sentence or of one word, and for constituents that cross.
    """

    words: tuple[str, ...]
    constituents: tuple[tuple[str, int, int], ...]

    def __post_init__(self):
        object.__setattr__(self, "words", tuple(self.words))
        opened = sorted(map(tuple, self.constituents), key=lambda item: outermost_first(item[1:]))
        object.__setattr__(self, "constituents", tuple(opened))
        for constituent in opened:
            if constituent[2] - constituent[1] < 2:
                raise ValueError(f"the constituent {constituent} must have at least two words")
        self.spans()  # refuses constituents that cross, and those outside the sentence

    @classmethod
    def from_bracket(cls, text: str, preprocessing: Preprocessing | None = None) -> GoldTree:
        """Reads one labelled tree, for instance `( (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat)) (. .)) )`.

        Words may also be untagged: `(S (NP the cat) sat)`. Root brackets without a label or with one of `ROOT_LABELS`
        are no constituents. Escapes such as `-LRB-` are kept, except character codes such as `\\u0020`. The default
        `preprocessing` is the papers' protocol.

        Raises:
            ValueError: if the text is not exactly one tree, the tree looks unlabelled, `(the (old cat))`, a label has
                no word, or leaves are numbered as in discontinuous trees (`0=is`).
        """
        nodes = list(read_brackets(text))
        if len(nodes) != 1:
            raise ValueError(f"expected one bracketed tree, got {len(nodes)} in {text[:60]!r}")
        tree = _gold_tree(nodes[0], preprocessing)
        _refuse_unlabelled(nodes)
        return tree

    @classmethod
    def from_nltk(cls, tree: Any, preprocessing: Preprocessing | None = None) -> GoldTree:
        """Converts an `nltk.Tree`, whose leaves may contain spaces and brackets; see `from_bracket`.

        Raises:
            ValueError: if a node has no label or no words, or a leaf is no word.
        """
        (root,) = read_brackets(write_nltk_tree(tree))
        return _gold_tree(root, preprocessing)

    def spans(self) -> list[tuple[int, int]]:
        """Returns the unlabelled constituents without duplicates, as `InducedTree.spans` does."""
        return self._without_labels().spans()

    def to_nested(self) -> list | str:
        """Returns the unlabelled tree as nested lists of words."""
        return self._without_labels().to_nested()

    def to_bracket(self) -> str:
        """Returns the tree as `(TOP (S (NP the cat) sat))`; `from_bracket` with `AS_WRITTEN` reads it back.

        Words and labels are written by `escape_leaf`, which refuses empty ones.
        """
        opening = [""] * len(self.words)
        closing = [""] * len(self.words)
        for label, start, end in self.constituents:
            opening[start] += f"({escape_leaf(label)} "
            closing[end - 1] += ")"
        parts = zip(opening, map(escape_leaf, self.words), closing, strict=True)
        return f"(TOP {' '.join(before + word + after for before, word, after in parts)})"

    def _without_labels(self) -> InducedTree:
        return InducedTree.from_spans(self.words, [(start, end) for _, start, end in self.constituents])


def read_treebank(
    paths: str | os.PathLike | Iterable[str | os.PathLike], preprocessing: Preprocessing | None = None
) -> list[GoldTree]:
    """Reads the gold trees of treebank files, in order; a sentence without words is an empty tree.

    Args:
        paths: one or several files (`.gz` files are decompressed) or folders. Of a folder, all `.mrg` and `.mrg.gz`
            files are read, recursively and sorted by path.
        preprocessing: rules for words and labels; the papers' protocol by default.

    Raises:
        FileNotFoundError: if a path does not exist or a folder has no such file.
        ValueError: if a file is not UTF-8, has no tree, has unbalanced brackets (with the line) or unlabelled trees.
    """
    trees = []
    for file in treebank_files(paths):
        try:
            roots = read_bracket_file(file)
            trees += [_gold_tree(root, preprocessing) for root in roots]
            _refuse_unlabelled(roots)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    return trees


def treebank_files(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """Returns the files that `read_treebank` reads, in order; for arguments and errors see there."""
    files = []
    for path in map(Path, [paths] if isinstance(paths, str | os.PathLike) else paths):
        if not path.exists():
            raise FileNotFoundError(f"treebank not found: {path}")
        found = [path]
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.name.lower().endswith((".mrg", ".mrg.gz")))
        if not found:
            raise FileNotFoundError(f"no .mrg file in the folder {path}; name the files")
        files += found
    return files


def gold_trees_from_brackets(texts: Iterable[str], preprocessing: Preprocessing | None = None) -> list[GoldTree]:
    """Reads one gold tree from each string; a `ValueError` names the position of a string that is none."""
    trees = []
    for position, text in enumerate(texts):
        try:
            trees.append(GoldTree.from_bracket(text, preprocessing))
        except ValueError as error:
            raise ValueError(f"gold tree {position}: {error}") from error
    return trees


def read_bracket_file(path: Path) -> list[BracketNode]:
    """Reads the trees of a file with all leaves; for errors see `read_treebank`."""
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            text = "\n".join(read_lines(file, "the file"))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"the file cannot be decompressed: {error}") from error
    return list(read_brackets(text))


def _refuse_unlabelled(roots: Sequence[BracketNode]) -> None:
    """Raises a `ValueError` for trees whose labels look like words: `(the (old cat))` has the form of `(NP (NN cat))`.

    No label may have small letters without capitals after its first letter, unless there is a root such as
    `( (S ...) )` or `(ROOT ...)`, or a labelled bracket that consists of several brackets.
    """
    labels: list[str] = []
    nodes = list(roots)
    for node in nodes:  # the list grows while it is walked
        subtrees = [child for child in node.children if isinstance(child, BracketNode)]
        if node.label is None:
            is_sure = len(node.children) == 1
        else:
            labels.append(node.label)
            is_sure = node.label.upper() in ROOT_LABELS or len(node.children) == len(subtrees) > 1
        if is_sure:
            return
        nodes += subtrees
    for label in labels:
        has_small_letter = any(letter.isalpha() and not letter.isupper() for letter in label)
        if has_small_letter and label[1:] == label[1:].lower():
            raise ValueError(f"the trees look unlabelled: {label!r} stands where a label is expected; {NEED_LABELS}")


def _gold_tree(root: BracketNode, preprocessing: Preprocessing | None) -> GoldTree:
    preprocessing = preprocessing or Preprocessing()
    words: list[str] = []
    leaves: list[str] = []  # all leaves as written, also those that are dropped
    closed: list[tuple[str, int, int]] = []
    open_brackets: list[tuple[str | None, int, Iterator[BracketNode | str]]] = [(None, 0, iter([root]))]
    while open_brackets:
        label, start, children = open_brackets[-1]
        child = next(children, None)
        if child is None:
            open_brackets.pop()
            if label is not None and len(words) - start > 1:
                closed.append((preprocessing.label(unescape_leaf(label)), start, len(words)))
        elif isinstance(child, str):
            leaves.append(child)
            words.append(preprocessing.word(unescape_leaf(child)))
        elif len(child.children) == 1 and isinstance(child.children[0], str):
            leaves += child.children
            if child.label not in preprocessing.dropped_tags:
                words.append(preprocessing.word(unescape_leaf(child.children[0])))
        else:
            is_root = len(open_brackets) == 1
            if child.label is None and not is_root:
                raise child.error(f"{NEED_LABELS}; there is none")
            # True if it and all brackets around it are no constituents.
            wraps_tree = label is None and (child.label is None or child.label.upper() in ROOT_LABELS)
            if not child.children and not (is_root and wraps_tree):
                raise child.error(f"the label {child.label!r} has no word; expected (TAG word)")
            open_brackets.append((None if wraps_tree else child.label, len(words), iter(child.children)))
    refuse_discontinuous(leaves, root)
    # Inner brackets close first, but of brackets over the same words GoldTree expects the outer one first.
    return GoldTree(tuple(words), tuple(closed[::-1]))
