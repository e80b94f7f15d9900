"""Compact files of a model's trees of a text, without the words.

They can be published even if the text's licence forbids sharing it. Instead of its distance, each word has the rank of
the distance in the sentence: 0 is the smallest, and equal distances share a rank. So every rule builds the same tree
from ranks. The reader supplies the text, which is checked by a fingerprint.

A file is compressed by xz. Its first line is JSON: `format`, `version`, `num_sentences`, `fingerprint` (of the words),
`bytes` (per rank), and `layers`, `parse_layer`, `model` and `branching_bias` as in `tree_files.py`. Then follow the
number of words of each sentence (4 bytes, little-endian), and for each layer the ranks of all words in order.
"""

import json
import lzma
import os
from collections.abc import Sequence

import numpy as np

from ..utils.files import fingerprint, written_file
from .tree_files import SentenceDistances, read_header, read_tree_file

SUFFIX = ".ranks.xz"
FORMAT, VERSION = "onlstm_hf ranks of syntactic distances", 1


def write_rank_file(path: str | os.PathLike, stored: SentenceDistances) -> None:
    """Writes a file from which `read_rank_file` rebuilds the trees."""
    lengths = np.array([len(words) for words in stored.sentences], dtype="<u4")
    dtype = np.dtype("u1" if lengths.max(initial=0) <= 256 else "<u4")
    header = {
        "format": FORMAT,
        "version": VERSION,
        "num_sentences": len(lengths),
        "fingerprint": fingerprint(map(" ".join, stored.sentences)),
        "bytes": dtype.itemsize,
        "layers": list(stored.by_layer),
        "parse_layer": stored.parse_layer,
        "model": stored.model,
        "branching_bias": stored.branching_bias,
    }
    content = [json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8"), b"\n", lengths.tobytes()]
    for sentences in stored.by_layer.values():
        content += [np.unique(distances, return_inverse=True)[1].astype(dtype).tobytes() for distances in sentences]
    with written_file(path, binary=True) as file:
        file.write(lzma.compress(b"".join(content), preset=9))


def read_rank_file(path: str | os.PathLike, sentences: Sequence[Sequence[str]]) -> SentenceDistances:
    """Reads a file of `write_rank_file`, given the words of each sentence of its text. The ranks are the distances.

    A file of another text is a `ValueError`; for other errors see `read_header`.
    """
    header, content = read_header(path, "ranks", FORMAT, VERSION)
    text_fingerprint = fingerprint(map(" ".join, sentences))
    if text_fingerprint != header.get("fingerprint"):
        raise ValueError(
            f"{path} has the trees of another text: {header.get('num_sentences')} sentences with the fingerprint "
            f"{header.get('fingerprint')}, not {len(sentences)} with {text_fingerprint}. Give the text that it was "
            "made from, and the model whose tokenizer split it (--tokenizer)"
        )
    count, layers = header["num_sentences"], header["layers"]
    lengths = np.frombuffer(content, "<u4", count)
    ranks = np.frombuffer(content, {1: "u1", 4: "<u4"}[header["bytes"]], offset=4 * count)
    ends = np.cumsum(lengths, dtype=np.int64)
    by_layer = {
        layer: [row[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
        for layer, row in zip(layers, ranks.reshape(len(layers), int(lengths.sum())), strict=True)
    }
    words = [tuple(sentence) for sentence in sentences]
    return SentenceDistances(words, by_layer, header["parse_layer"], header["model"], header["branching_bias"])


def read_trees_of_text(path: str | os.PathLike, sentences: Sequence[Sequence[str]]) -> SentenceDistances:
    """Reads the trees of a text from a file of ranks (`*.ranks.xz`) or of trees; see `read_rank_file`."""
    if str(path).endswith(SUFFIX):
        return read_rank_file(path, sentences)
    stored = read_tree_file(path)
    if stored.sentences != [tuple(words) for words in sentences]:
        raise ValueError(f"{path} has the trees of another text, or of the same text split into other words")
    return stored
