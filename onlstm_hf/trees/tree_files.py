"""Files of a model's trees of a treebank, which allow an evaluation without the model's weights.

A file is JSON lines compressed by xz. The first line is the header: `format`, `version`, `num_sentences`, `layers`
(counted from 0; `[null]` for a model with the same distances for all layers), `parse_layer` (the default layer of the
model's `parse`) and `model`, the metadata of the model. Each other line is a sentence: its `words`, and its
`distances`, a list of numbers per layer. A file of a grammar's trees has a `branching_bias` in its header, too: the
only rule that rebuilds the trees.
"""

import json
import lzma
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..utils.files import split_lines, written_file
from .distances import tree_from_distances
from .induced_tree import InducedTree

FILE_NAME = "trees.jsonl.xz"  # in the folder of a training run
# Files without `branching_bias` have version 1.
FORMAT, VERSION = "onlstm_hf syntactic distances", 2
# Significant digits of a stored distance: the minimum, and a number that distinguishes any two floats.
SIGNIFICANT_DIGITS, DIGITS_OF_ANY_FLOAT = 4, 17


@dataclass(frozen=True)
class SentenceDistances:
    """Syntactic distances of the words of sentences, for each layer of a model.

    Attributes:
        sentences: the words of each sentence.
        by_layer: for each layer, counted from 0, the distances of each sentence's words. A model with the same
            distances for all layers has the single key `None`.
        parse_layer: the layer from which the model builds trees by default; `None` if that is the only key.
        model: metadata of the model, as JSON values.
        branching_bias: the only rule that rebuilds trees of a grammar; `None` for the distances of a model.
    """

    sentences: list[tuple[str, ...]]
    by_layer: dict[int | None, list[list[float]]]
    parse_layer: int | None = None
    model: dict[str, Any] = field(default_factory=dict)
    branching_bias: str | None = None

    def trees(self, layer: int | None = None, branching_bias: str = "right") -> list[InducedTree]:
        """Builds the trees of one layer, by default `parse_layer`; a rule of the file replaces `branching_bias`.

        Raises:
            ValueError: if there is no such layer, or the bias is unknown (see `tree_from_distances`).
        """
        layer = self.parse_layer if layer is None else layer
        if layer not in self.by_layer:
            raise ValueError(f"there are no distances of layer {layer}; layers: {', '.join(map(str, self.by_layer))}")
        rule = self.branching_bias or branching_bias
        return [
            tree_from_distances(distances, words, rule)
            for words, distances in zip(self.sentences, self.by_layer[layer], strict=True)
        ]


def write_tree_file(path: str | os.PathLike, stored: SentenceDistances) -> None:
    """Writes a file from which `read_tree_file` rebuilds the trees; the distances are `rounded`."""
    header = {
        "format": FORMAT,
        "version": 1 if stored.branching_bias is None else VERSION,
        "num_sentences": len(stored.sentences),
        "layers": list(stored.by_layer),
        "parse_layer": stored.parse_layer,
        "model": stored.model,
        **({} if stored.branching_bias is None else {"branching_bias": stored.branching_bias}),
    }
    lines = [header]
    for index, words in enumerate(stored.sentences):
        distances = [rounded(sentences[index]) for sentences in stored.by_layer.values()]
        lines.append({"words": words, "distances": distances})
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    with written_file(path, binary=True) as file:
        file.write(lzma.compress(text.encode("utf-8")))


def rounded(distances: Sequence[float]) -> list[float]:
    """Rounds each distance of a sentence to the fewest significant digits that distinguish it from the others.

    It keeps at least `SIGNIFICANT_DIGITS` digits, and the order of the distances.
    """
    short: dict[float, float] = {}
    for digits in range(SIGNIFICANT_DIGITS, DIGITS_OF_ANY_FLOAT + 1):
        values = {distance: float(f"{distance:.{digits}g}") for distance in distances}
        repeats = Counter(values.values())
        short = {distance: value for distance, value in values.items() if repeats[value] == 1} | short
        if len(short) == len(values):
            break
    return [short[distance] for distance in distances]


def read_tree_file(path: str | os.PathLike) -> SentenceDistances:
    """Reads a file of `write_tree_file`; for errors see `read_header`."""
    header, content = read_header(path, "trees", FORMAT, VERSION)
    rows = [json.loads(line) for line in split_lines(content.decode("utf-8")) if line]
    by_layer = {layer: [row["distances"][index] for row in rows] for index, layer in enumerate(header["layers"])}
    sentences = [tuple(row["words"]) for row in rows]
    return SentenceDistances(sentences, by_layer, header["parse_layer"], header["model"], header.get("branching_bias"))


def read_header(path: str | os.PathLike, kind: str, file_format: str, last_version: int) -> tuple[dict, bytes]:
    """Returns the header, which is the first line of a compressed file of this kind, and the bytes after it.

    A missing file is a `FileNotFoundError`. A file that is damaged, or has another format, or a version that is not 1
    to `last_version`, is a `ValueError`.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        first_line, _, content = lzma.decompress(Path(path).read_bytes()).partition(b"\n")
        header = json.loads(first_line)
        if header["format"] != file_format:
            raise ValueError(f"its format is {header['format']!r}")
    except (lzma.LZMAError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of {kind}, or damaged: {error}") from error
    version = header.get("version")
    if version not in range(1, last_version + 1):
        raise ValueError(f"{path} is a file of {kind} of version {version}; the latest known one is {last_version}")
    return header, content
