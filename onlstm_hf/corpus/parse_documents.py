"""datatrove step that turns documents into one document with a tree per sentence."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from datatrove.data import Document, DocumentsPipeline
from datatrove.pipeline.base import PipelineStep

from ..text.sentence_splitting import count_several, sentence_splitter
from ..trees.induced_tree import InducedTree
from ..utils.iteration import bounded_windows
from .progress import report_progress
from .writers import COLUMNS

# Sentences are read, sorted by length and parsed in windows of bounded size, so that memory is bounded.
SENTENCES_PER_WINDOW = 1 << 12
CHARACTERS_PER_WINDOW = 1 << 20
# A text with more characters per allowed word is skipped: it has no spaces, or it is data.
CHARACTERS_PER_WORD = 20
# Name of the step in datatrove's statistics.
STEP_NAME = "🌳 - PARSER: constituency trees"
# Statistic that counts lines with several sentences that were parsed as one sentence.
SEVERAL = "several sentences"


class ParseOptions(NamedTuple):
    """Options for splitting and parsing; for `layer`, `branching_bias` and `punctuation` see `parse`.

    Attributes:
        language: code of the language whose rules split documents into sentences, such as `"en"` (see
            `sentence_splitter`). Without it, each line is a sentence.
        trees: the column of the trees, `"spans"` or `"brackets"`.
        distances, log_probability: whether to add these columns.
        batch_size: sentences per forward pass.
        max_words: longer sentences are skipped.
        dtype: data type of the weights, `"float32"` or `"bfloat16"`.
    """

    language: str | None = None
    trees: str = "spans"
    distances: bool = False
    log_probability: bool = True
    layer: int | None = None
    branching_bias: str = "right"
    punctuation: str = "drop"
    batch_size: int = 256
    max_words: int = 1000
    dtype: str = "float32"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table, a subset of `COLUMNS` in the same order."""
        left_out = {"spans", "brackets"} - {self.trees}
        left_out |= {name for name in ("distances", "log_probability") if not getattr(self, name)}
        return tuple(name for name in COLUMNS if name not in left_out)


class Sentence(NamedTuple):
    """A sentence with its position in the document and, if it cannot be parsed, the reason."""

    document: Document
    position: int
    start: int
    text: str
    reason: str | None


class ParseDocuments(PipelineStep):
    """Parses the sentences of documents.

    Yields one datatrove document per sentence, in input order, with a row of the table in `metadata["row"]`. A
    document without sentences also yields one. A sentence that cannot be parsed has a reason instead of a tree.

    Args:
        model: a checkpoint folder, or a name on the Hub. Each process loads it once, when a task starts.
        threads: threads per process; by default PyTorch's choice.
        trust_remote_code: see `load_checkpoint`.
        progress_folder: a local folder for progress reports.
    """

    type, name = STEP_NAME.split(": ")

    def __init__(
        self,
        model: str,
        options: ParseOptions = ParseOptions(),  # noqa: B008 (it is immutable)
        threads: int | None = None,
        trust_remote_code: bool = False,
        progress_folder: Path | None = None,
    ):
        super().__init__()
        self.model = model
        self.options = options
        self.threads = threads
        self.trust_remote_code = trust_remote_code
        self.progress_folder = progress_folder

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        language, num_sentences = self.options.language, 0
        split = _lines if language is None else sentence_splitter(language)
        model, tokenizer = _load(self.model, self.trust_remote_code, self.threads, self.options.dtype)
        sentences = _sentences(data, split, self.options.max_words)
        for window in bounded_windows(
            sentences, SENTENCES_PER_WINDOW, lambda sentence: len(sentence.text), CHARACTERS_PER_WINDOW
        ):
            with self.track_time("window"):
                rows = list(self._rows(window, model, tokenizer))
            num_sentences += len(rows)
            share_read = window[-1].document.metadata.get("share_read", 0.0)
            report_progress(self.progress_folder, rank, share_read, num_sentences)
            counts = Counter(row["reason"] or "parsed" for row in rows)
            if language is None and (several := count_several(sentence.text for sentence in window)):
                counts[SEVERAL] = several
            for reason, number in counts.items():
                self.stat_update(reason, value=number, unit="window")
            for sentence, row in zip(window, rows, strict=True):
                yield Document(text=sentence.text, id=row["document"], metadata={"row": row})
        report_progress(self.progress_folder, rank, 1.0, num_sentences)

    def _rows(self, window: list[Sentence], model, tokenizer) -> Iterator[dict]:
        options = self.options
        texts = [sentence.text for sentence in window if sentence.reason is None]
        if options.log_probability:
            results = _scored_trees(model, tokenizer, texts, options)
        else:
            names = ("layer", "branching_bias", "punctuation", "batch_size")
            trees = model.parse(texts, tokenizer, progress=False, **{name: getattr(options, name) for name in names})
            results = ((tree, None) for tree in trees)
        for sentence in window:
            row = dict.fromkeys(options.columns)
            tree, log_probability = (None, None) if sentence.reason else next(results)
            reason = sentence.reason or (None if tree.words else "no words")
            row |= {"document": sentence.document.id, "position": sentence.position, "reason": reason}
            if reason is None:
                record = tree.to_record(sentence.text) | {"start": sentence.start, "log_probability": log_probability}
                row |= {name: record[name] for name in options.columns if name in record}
                for span in row.get("spans", ()):
                    del span["text"]  # would repeat the text at each level of the tree
            yield row


def _scored_trees(model, tokenizer, texts: list[str], options: ParseOptions) -> Iterator[tuple[InducedTree, float]]:
    """Yields the tree and the log probability of each sentence, from one forward pass."""
    from ..parsing.sentences import build_tree, first_of_each_unit, read_text
    from ..scoring.sentences import score_encoded

    sentences = [read_text(tokenizer, text) for text in texts]
    encoded = [read.input_ids for read in sentences]
    scores = score_encoded(model, tokenizer, encoded, options.batch_size, progress=False, with_distances=True)
    for sentence, (score, by_layer) in zip(sentences, scores, strict=True):
        distances = first_of_each_unit(by_layer[model.resolve_layer(options.layer)], sentence.unit_of_token)
        tree = build_tree(sentence, distances, options.branching_bias, options.punctuation)
        yield tree, sum(score.log_probabilities)


def _lines(text: str) -> list[tuple[int, int]]:
    """Returns start and end of each line with text, without surrounding white space."""
    return [match.span() for match in re.finditer(r"\S(?:[^\n]*\S)?", text)]


def _sentences(
    documents: Iterable[Document], split: Callable[[str], Iterable[tuple[int, int]]], max_words: int
) -> Iterator[Sentence]:
    """Yields the sentences of each document; a document without words yields one with a reason."""
    for document in documents:
        if reason := document.metadata.get("reason"):
            yield Sentence(document, 0, 0, "", reason)
            continue
        places = split(document.text)
        for position, (start, end) in enumerate(places):
            text = document.text[start:end]
            reason = "NUL characters" if "\0" in text else None
            if len(text) > max_words * CHARACTERS_PER_WORD or len(text.split()) > max_words:
                reason = f"more than {max_words} words"
            yield Sentence(document, position, start, "" if reason else text, reason)
        if not places:
            yield Sentence(document, 0, 0, "", "no words")


@cache
def _load(name: str, trust_remote_code: bool, threads: int | None, dtype: str):
    import torch

    from ..utils.checkpoints import load_checkpoint

    if threads is not None:
        torch.set_num_threads(threads)
    return load_checkpoint(name, trust_remote_code=trust_remote_code, dtype=dtype)
