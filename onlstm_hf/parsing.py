"""`parse()`: from sentences to the trees that a language model induces."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import tqdm

from .trees import InducedTree, tree_from_distances
from .word_alignment import encode_sentence, encode_words

# Sentences are sorted by length within windows of this many batches, so that memory stays bounded on any input.
BATCHES_PER_WINDOW = 64
MAX_TOKENS_PER_BATCH = 16384
PROGRESS_FROM = 2000


class EncodedSentence(NamedTuple):
    """A sentence as the model reads it: its units (words or tokens), token ids, and each token's unit."""

    units: list[str]
    input_ids: list[int]
    unit_of_token: list[int]


class ParsingMixin:
    """Adds `parse` to a model with `syntactic_distances(input_ids, attention_mask, state, layer, ...)`."""

    def parse(
        self,
        sentences: str | Sequence[int] | torch.Tensor | Iterable[str | Sequence[str] | Sequence[int]],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        layer: int | None = None,
        branching_bias: str = "right",
        units: str = "words",
        batch_size: int = 64,
        max_length: int | None = None,
        progress: bool | None = None,
        **distance_options,
    ) -> InducedTree | list[InducedTree]:
        """Returns the constituency trees that the model induces.

        A sentence is read after one `<eos>`, as at the start of a line of the training text. Its words' syntactic
        distances become a binary tree by `tree_from_distances`. With a subword tokenizer a word's distance is that of
        its first subword: the distance before a token says how much is closed there, and inside a word nothing is.

        Args:
            sentences: one string; or many sentences, each a string, a list of words, or a list (or tensor row) of token
                ids; or one tensor or list of ids. Padding ids and `<eos>` at either end of id rows are ignored.
            tokenizer: needed for strings and words; with ids it only names the tokens.
            layer: layer whose distances are used, counted from 0; the configuration's `parse_layer` by default.
            branching_bias: `"right"`, the papers' rule, or `"none"` (see `tree_from_distances`).
            units: what the leaves are: `"words"`, or `"tokens"` for the tokenizer's own (sub)words.
            batch_size: sentences in one pass through the model. Long sentences get smaller batches.
            max_length: at most this many tokens go through the model at a time, the state carried from piece to piece.
                It bounds memory for very long input; the trees are the same. `None` reads every sentence at once.
            progress: show a progress bar; by default on long jobs.
            distance_options: passed on to the model's `syntactic_distances`.

        Returns:
            An `InducedTree` for one sentence, a list of them in the input's order for many.

        Raises:
            ValueError: if the input, an option or the tokenizer does not fit, or the model computes NaN.
        """
        if units not in ("words", "tokens"):
            raise ValueError(f'units must be "words" or "tokens", not {units!r}')
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length must be at least 1 or None, not {max_length}")
        if tokenizer is not None and len(tokenizer) > self.config.vocab_size:
            raise ValueError(
                f"the tokenizer does not fit the model: it has {len(tokenizer)} tokens, the model's vocabulary "
                f"{self.config.vocab_size}"
            )
        if _is_one_sentence(sentences):
            return self.parse(
                [sentences],
                tokenizer,
                layer=layer,
                branching_bias=branching_bias,
                units=units,
                max_length=max_length,
                progress=False,
                **distance_options,
            )[0]

        total = len(sentences) if hasattr(sentences, "__len__") else None
        if progress is None:
            progress = total is None or total >= PROGRESS_FROM
        was_training = self.training
        self.eval()
        trees: list[InducedTree] = []
        try:
            with torch.inference_mode(), tqdm(total=total, unit="sentence", disable=not progress) as bar:
                encoded = (self._encode(sentence, tokenizer, units) for sentence in sentences)
                for window in _windows(encoded, batch_size * BATCHES_PER_WINDOW):
                    distances: list[list[float]] = [[] for _ in window]
                    for batch in _batches(window, batch_size):
                        rows = [window[index] for index in batch]
                        for index, row in zip(
                            batch, self._unit_distances(rows, layer, max_length, **distance_options), strict=True
                        ):
                            distances[index] = row
                        bar.update(len(batch))
                    trees.extend(
                        tree_from_distances(row, sentence.units, branching_bias)
                        for row, sentence in zip(distances, window, strict=True)
                    )
        finally:
            self.train(was_training)
        return trees

    def _encode(self, sentence, tokenizer: PreTrainedTokenizerBase | None, units: str) -> EncodedSentence:
        if isinstance(sentence, torch.Tensor):
            sentence = sentence.tolist()
        is_ids = not isinstance(sentence, str) and any(not isinstance(item, str) for item in sentence)
        if is_ids:
            encoded = self._encode_ids(list(sentence), tokenizer)
        elif tokenizer is None:
            raise ValueError(
                "parsing strings or words needs the tokenizer: model.parse(sentences, tokenizer=tokenizer)"
            )
        else:
            if isinstance(sentence, str):
                words, input_ids, unit_of_token, _ = encode_sentence(tokenizer, sentence)
            else:
                words = list(sentence)
                input_ids, unit_of_token = encode_words(tokenizer, words)
            if units == "tokens":
                words = tokenizer.convert_ids_to_tokens(input_ids)
                unit_of_token = list(range(len(words)))
            encoded = EncodedSentence(list(words), list(input_ids), list(unit_of_token))
        outside = [token for token in encoded.input_ids if not 0 <= token < self.config.vocab_size]
        if outside:
            raise ValueError(
                f"token id {outside[0]} is outside the model's vocabulary of {self.config.vocab_size}: "
                "the tokenizer does not belong to this model"
            )
        return encoded

    def _encode_ids(self, ids: list[int], tokenizer: PreTrainedTokenizerBase | None) -> EncodedSentence:
        if not all(isinstance(token, int) for token in ids):
            raise ValueError("a sentence must be a string, a list of words, or a list of integer token ids")
        edges = {
            token for token in (*_token_ids(self.config.eos_token_id), self.config.pad_token_id) if token is not None
        }
        start, end = 0, len(ids)
        while start < end and ids[start] in edges:
            start += 1
        while start < end and ids[end - 1] in edges:
            end -= 1
        ids = ids[start:end]
        names = tokenizer.convert_ids_to_tokens(ids) if tokenizer is not None else [str(token) for token in ids]
        return EncodedSentence(names, ids, list(range(len(ids))))

    def _unit_distances(
        self, batch: list[EncodedSentence], layer: int | None, max_length: int | None, **distance_options
    ) -> list[list[float]]:
        """The distance of each unit of each sentence of a batch."""
        prefix = list(_token_ids(self.config.eos_token_id))[:1]
        longest = max(len(sentence.input_ids) for sentence in batch)
        if longest == 0:
            return [[] for _ in batch]
        input_ids = torch.zeros(len(batch), len(prefix) + longest, dtype=torch.long)
        attention_mask = torch.zeros_like(input_ids)
        for row, sentence in enumerate(batch):
            ids = prefix + sentence.input_ids
            input_ids[row, : len(ids)] = torch.tensor(ids)
            attention_mask[row, : len(ids)] = 1

        pieces, state = [], None
        for start in range(0, input_ids.shape[1], max_length or input_ids.shape[1]):
            piece = slice(start, start + (max_length or input_ids.shape[1]))
            distances, state = self.syntactic_distances(
                input_ids[:, piece].to(self.device),
                attention_mask=attention_mask[:, piece].to(self.device),
                state=state,
                layer=layer,
                **distance_options,
            )
            pieces.append(distances.float().cpu())
        distances = torch.cat(pieces, dim=1)
        if not torch.isfinite(distances).all():
            raise ValueError("the model computed distances that are not finite: its weights contain NaN or infinity")
        return [
            _first_of_each_unit(row[len(prefix) :], sentence)
            for row, sentence in zip(distances.tolist(), batch, strict=True)
        ]


def _first_of_each_unit(token_distances: list[float], sentence: EncodedSentence) -> list[float]:
    distances: list[float | None] = [None] * len(sentence.units)
    for distance, unit in zip(token_distances, sentence.unit_of_token, strict=False):
        if distances[unit] is None:
            distances[unit] = distance
    return distances


def _token_ids(value: int | list[int] | None) -> list[int]:
    """A token id of a configuration, which may be absent or several, as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_one_sentence(sentences) -> bool:
    if isinstance(sentences, torch.Tensor):
        return sentences.dim() == 1
    if isinstance(sentences, str):
        return True
    return isinstance(sentences, (list, tuple)) and len(sentences) > 0 and isinstance(sentences[0], int)


def _windows(items: Iterator[EncodedSentence], size: int) -> Iterator[list[EncodedSentence]]:
    for first in items:
        yield list(chain([first], islice(items, size - 1)))


def _batches(window: list[EncodedSentence], batch_size: int) -> Iterator[list[int]]:
    """Indices of sentences of similar length, at most `MAX_TOKENS_PER_BATCH` tokens with their padding."""
    batch: list[int] = []
    for index in sorted(range(len(window)), key=lambda i: len(window[i].input_ids)):
        length = len(window[index].input_ids)
        if batch and (len(batch) == batch_size or (len(batch) + 1) * length > MAX_TOKENS_PER_BATCH):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
