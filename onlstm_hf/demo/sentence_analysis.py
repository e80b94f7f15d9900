"""What a language model finds in a sentence: a tree, the distances of every layer, how surprising each word is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..parsing.sentences import first_of_each_unit
from ..scoring.parsing_scores import ParsingScores, score_parses
from ..scoring.sentences import SentenceScore, score_encoded_sentences, score_with_distances
from ..text.unknown_words import differ_in_unknown_word, tokenize_sentences
from ..text.word_alignment import encode_sentence, encode_words
from ..trees.baselines import baseline_trees
from ..trees.distances import tree_from_distances
from ..trees.induced_tree import InducedTree
from ..trees.treebank import GoldTree

END = "(end)"


@dataclass(frozen=True)
class SentenceReading:
    """How a language model reads a sentence that stands alone, after one `<eos>`.

    Attributes:
        words: the words as they were given.
        surprisals: for each word minus the base-2 logarithm of its probability after all before it, in bits. That of
            a word of several tokens is the sum of theirs.
        end_surprisal: the same of the `<eos>` that ends the sentence.
        is_unknown: for each word whether the model has no token for it. Its surprisal is then that of `<unk>`, which
            stands for all such words together.
    """

    words: tuple[str, ...]
    surprisals: tuple[float, ...]
    end_surprisal: float
    is_unknown: tuple[bool, ...]

    @property
    def total_surprisal(self) -> float:
        """Of the sentence and its end, in bits: minus the base-2 logarithm of its probability."""
        return sum(self.surprisals) + self.end_surprisal

    def unit(self, index: int | None) -> "Unit | None":
        """The word with this index; the end of the sentence after the last one."""
        if index is None:
            return None
        if index == len(self.words):
            return Unit(END, self.end_surprisal)
        return Unit(self.words[index], self.surprisals[index], self.is_unknown[index])

    @property
    def unknown_words(self) -> tuple[str, ...]:
        return tuple(word for word, is_unknown in zip(self.words, self.is_unknown, strict=True) if is_unknown)


@dataclass(frozen=True)
class SentenceAnalysis:
    """What a language model finds in a sentence.

    Attributes:
        reading: the words and their surprisals.
        tree: the induced tree; `None` if the model induces none.
        trees_by_layer: the trees of every layer, which keep its distances, by its name in a figure; empty without a
            tree.
        gold: the gold tree that the sentence came with.
    """

    reading: SentenceReading
    tree: InducedTree | None
    trees_by_layer: dict[str, InducedTree]
    gold: GoldTree | None

    def scores(self) -> dict[str, ParsingScores]:
        """Scores against the gold tree, by what made the tree: the model and, to compare, two rules without one.

        Empty without an induced and a gold tree.
        """
        if self.tree is None or self.gold is None:
            return {}
        trees = {"the model": self.tree}
        for name in ("left branching", "right branching"):
            (trees[name],) = baseline_trees(name, [self.gold])
        return {name: score_parses([tree], [self.gold], num_resamples=0) for name, tree in trees.items()}


class Unit(NamedTuple):
    """A word, or the end of a sentence, with its surprisal in bits and whether the model does not know it."""

    word: str
    surprisal: float
    is_unknown: bool = False


class PairColumn(NamedTuple):
    """What stands in the same place of the two sentences of a minimal pair; `None` where one has no word there."""

    grammatical: Unit | None
    ungrammatical: Unit | None

    @property
    def difference(self) -> float:
        """By how many bits the grammatical sentence is less surprising here. All columns add up to the pair's."""
        grammatical, ungrammatical = (0.0 if unit is None else unit.surprisal for unit in self)
        return ungrammatical - grammatical


@dataclass(frozen=True)
class PairComparison:
    """How a language model reads a minimal pair.

    Attributes:
        grammatical, ungrammatical: the two sentences.
        differs_in_unknown_word: whether a word in which they differ is outside the vocabulary. Which of the two is
            more probable then says little.
    """

    grammatical: SentenceReading
    ungrammatical: SentenceReading
    differs_in_unknown_word: bool

    @property
    def difference(self) -> float:
        """By how many bits the grammatical sentence is less surprising as a whole; 0 is a tie."""
        return self.ungrammatical.total_surprisal - self.grammatical.total_surprisal

    def columns(self) -> list["PairColumn"]:
        """The words of the two sentences side by side, those that both have in the same column, and the end."""
        first, second = self.grammatical, self.ungrammatical
        columns = []
        edits = SequenceMatcher(None, first.words, second.words, autojunk=False).get_opcodes()
        for _, start, end, other_start, other_end in edits:
            columns += zip_longest(range(start, end), range(other_start, other_end))
        columns.append((len(first.words), len(second.words)))
        return [PairColumn(first.unit(index), second.unit(other)) for index, other in columns]


def analyze_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str | GoldTree],
    layer: int | None = None,
    branching_bias: str = "right",
) -> list[SentenceAnalysis]:
    """Parses sentences with every layer of a model and measures the surprisals of their words, in one pass.

    Args:
        model: a language model of this package.
        tokenizer: its tokenizer.
        sentences: strings, or gold trees, whose words are then read.
        layer: the layer that makes the trees, counted from 0; by default the one of the configuration. It must be
            `None` for a model with the same distances for all layers or without any.
        branching_bias: see `tree_from_distances`.

    Raises:
        ValueError: if an option or the tokenizer does not fit the model.
    """
    encoded = [encode(tokenizer, sentence) for sentence in sentences]
    ids = [input_ids for _, input_ids, _ in encoded]
    if not model.induces_trees:
        scores = score_encoded_sentences(model, tokenizer, ids)
        trees, layers = [None] * len(sentences), {}
    else:
        scores, distances = zip(*score_with_distances(model, tokenizer, ids), strict=True)
        by_layer = [
            [
                tree_from_distances(first_of_each_unit(row, word_of_token), words, branching_bias)
                for row, (words, _, word_of_token) in zip(rows, encoded, strict=True)
            ]
            for rows in zip(*distances, strict=True)
        ]
        trees, layers = model.name_layers(layer, by_layer)
    readings = [_reading(tokenizer, *sentence) for sentence in zip(encoded, scores, strict=True)]
    return [
        SentenceAnalysis(
            reading=reading,
            tree=tree,
            trees_by_layer={name: layer_trees[index] for name, layer_trees in layers.items()},
            gold=sentence if isinstance(sentence, GoldTree) else None,
        )
        for index, (sentence, reading, tree) in enumerate(zip(sentences, readings, trees, strict=True))
    ]


def compare_pair(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, grammatical: str, ungrammatical: str
) -> PairComparison:
    """Reads the two sentences of a minimal pair.

    Raises:
        ValueError: if the tokenizer does not fit the model or does not tell the places of its tokens.
    """
    pair = [grammatical, ungrammatical]
    unknown = differ_in_unknown_word(*tokenize_sentences(tokenizer, pair))
    return PairComparison(*read_sentences(model, tokenizer, pair), unknown)


def read_sentences(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str | GoldTree]
) -> list[SentenceReading]:
    """Measures the surprisals of the words of sentences, each a string or a gold tree.

    Raises:
        ValueError: if the tokenizer does not fit the model.
    """
    encoded = [encode(tokenizer, sentence) for sentence in sentences]
    scores = score_encoded_sentences(model, tokenizer, [ids for _, ids, _ in encoded])
    return [_reading(tokenizer, *sentence) for sentence in zip(encoded, scores, strict=True)]


def _reading(
    tokenizer: PreTrainedTokenizerBase, encoded: tuple[list[str], list[int], list[int]], score: SentenceScore
) -> SentenceReading:
    words, ids, word_of_token = encoded
    surprisals = [0.0] * len(words)
    unknown = [False] * len(words)
    *word_tokens, end = score.log_probabilities
    for token, word, log_probability in zip(ids, word_of_token, word_tokens, strict=True):
        surprisals[word] -= log_probability / math.log(2)
        unknown[word] |= token == tokenizer.unk_token_id
    return SentenceReading(tuple(words), tuple(surprisals), -end / math.log(2), tuple(unknown))


def encode(tokenizer: PreTrainedTokenizerBase, sentence: str | GoldTree) -> tuple[list[str], list[int], list[int]]:
    """The words of a sentence, their token ids without special tokens, and for each token the index of its word.

    Raises:
        ValueError: see `encode_words`.
    """
    if isinstance(sentence, GoldTree):
        words = list(sentence.words)
        return words, *encode_words(tokenizer, words)
    return encode_sentence(tokenizer, sentence)[:3]
