"""What a language model finds in a sentence: a tree, the distances of every layer, how surprising each word is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..scoring.parsing_scores import ParsingScores, score_parses
from ..scoring.sentences import score_encoded_sentences
from ..text.unknown_words import differ_in_unknown_word, tokenize_sentences
from ..text.word_alignment import encode_sentence, encode_words
from ..trees.brackets import has_labels, read_brackets
from ..trees.drawing import WordMeasure, words_to_svg
from ..trees.induced_tree import InducedTree
from ..trees.treebank import GoldTree


@dataclass(frozen=True)
class SentenceReading:
    """How a language model reads a sentence that stands alone, after one `<eos>`.

    Attributes:
        words: the words as they were given.
        surprisals: for each word minus the base-2 logarithm of its probability after all before it, in bits. That of
            a word of several tokens is the sum of theirs.
        end_surprisal: the same of the `<eos>` that ends the sentence.
        unknown_words: those that the model has no token for.
    """

    words: tuple[str, ...]
    surprisals: tuple[float, ...]
    end_surprisal: float
    unknown_words: tuple[str, ...]

    @property
    def log_probability(self) -> float:
        """Natural logarithm of the probability of the sentence and its end."""
        return -math.log(2) * (sum(self.surprisals) + self.end_surprisal)

    @property
    def measure(self) -> WordMeasure:
        """The surprisals, to be drawn below the words."""
        return WordMeasure("surprisal", self.surprisals, "bits")


@dataclass(frozen=True)
class SentenceAnalysis:
    """What a language model finds in a sentence.

    Attributes:
        reading: the words and their surprisals.
        tree: the induced tree; `None` if the model induces none.
        distances_by_layer: the distances of the words in every layer, by its name in a figure; empty without a tree.
        gold: the gold tree that the sentence came with.
    """

    reading: SentenceReading
    tree: InducedTree | None
    distances_by_layer: dict[str, tuple[float, ...]]
    gold: GoldTree | None

    def scores(self) -> ParsingScores | None:
        """Scores of the induced against the gold tree, where there are both."""
        if self.tree is None or self.gold is None:
            return None
        return score_parses([self.tree], [self.gold], num_resamples=0)

    def to_svg(self) -> str:
        """The tree, and below each word its distances and its surprisal."""
        layers = [WordMeasure(name, distances) for name, distances in self.distances_by_layer.items()]
        return words_to_svg(self.reading.words, [*layers, self.reading.measure], self.tree)


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
        """By how much the log probability of the grammatical sentence is higher, in nats; 0 is a tie."""
        return self.grammatical.log_probability - self.ungrammatical.log_probability


def analyze_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str | GoldTree],
    layer: int | None = None,
    branching_bias: str = "right",
) -> list[SentenceAnalysis]:
    """Parses sentences with every layer of a model and measures the surprisals of their words.

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
    readings = read_sentences(model, tokenizer, sentences)
    texts = [list(sentence.words) if isinstance(sentence, GoldTree) else sentence for sentence in sentences]
    if not model.induces_trees:
        trees, layers = [None] * len(texts), {}
    else:
        options = {"layer": layer, "branching_bias": branching_bias, "progress": False}
        trees, layers = model.parse_by_layer(texts, tokenizer, **options)
    return [
        SentenceAnalysis(
            reading=reading,
            tree=tree,
            distances_by_layer={name: layer_trees[index].distances for name, layer_trees in layers.items()},
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
    readings = []
    for (words, ids, word_of_token), score in zip(encoded, scores, strict=True):
        surprisals = [0.0] * len(words)
        unknown = [False] * len(words)
        *word_tokens, end = score.log_probabilities
        for token, word, log_probability in zip(ids, word_of_token, word_tokens, strict=True):
            surprisals[word] -= log_probability / math.log(2)
            unknown[word] |= token == tokenizer.unk_token_id
        unknown_words = tuple(word for word, is_unknown in zip(words, unknown, strict=True) if is_unknown)
        readings.append(SentenceReading(tuple(words), tuple(surprisals), -end / math.log(2), unknown_words))
    return readings


def encode(tokenizer: PreTrainedTokenizerBase, sentence: str | GoldTree) -> tuple[list[str], list[int], list[int]]:
    """The words of a sentence, their token ids without special tokens, and for each token the index of its word.

    Raises:
        ValueError: see `encode_words`.
    """
    if isinstance(sentence, GoldTree):
        words = list(sentence.words)
        return words, *encode_words(tokenizer, words)
    return encode_sentence(tokenizer, sentence)[:3]


def split_text(text: str) -> list[str]:
    """The sentences and bracketed trees of a text: a sentence a line, a tree over as many lines as it needs.

    A tree begins with a line that begins with a bracket, and ends with the line that closes it.

    Raises:
        ValueError: if the brackets of a tree are never closed.
    """
    parts = []
    unclosed = ""
    for line in text.splitlines():
        part = f"{unclosed} {line.strip()}".strip()
        is_open = part.startswith("(") and part.count("(") > part.count(")")
        unclosed = part if is_open else ""
        if part and not is_open:
            parts.append(part)
    if unclosed:
        raise ValueError(
            f"the brackets of {unclosed[:40]!r} are never closed; a line that begins with a bracket begins a gold tree"
        )
    return parts


def read_gold_tree(text: str) -> GoldTree | None:
    """The gold tree in a part of a text, `None` if it is a sentence.

    Args:
        text: a tree is anything between brackets: `(S (NP (DT the) (NN cat)) (VP (VBD sat)))` with tags and labels,
            whose words are preprocessed as the papers do it, or `((the cat) sat)` without, whose words are kept.

    Raises:
        ValueError: for malformed brackets and for several trees.
    """
    if not (text.startswith("(") and text.endswith(")")):
        return None
    root, *others = read_brackets(text)
    if others:
        raise ValueError(f"expected one tree a line, got {1 + len(others)} in {text[:40]!r}")
    if has_labels(root):
        return GoldTree.from_bracket(text)
    tree = InducedTree.from_bracket(text, labelled=False)
    return GoldTree(tree.words, tuple(("X", *span) for span in tree.spans()))
