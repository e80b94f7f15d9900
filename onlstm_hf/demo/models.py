"""The models of the web page and what its users ask of them, within limits that keep it quick for everybody."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..text.spelling import spell_as_treebank
from ..trees.induced_tree import InducedTree
from ..trees.treebank import GoldTree
from ..utils.checkpoints import load_checkpoint
from .sentence_analysis import (
    PairComparison,
    SentenceAnalysis,
    analyze_sentences,
    compare_pair,
    encode,
)
from .text_input import read_gold_tree, spell_gold_tree, split_text

# Of a request: its characters, its sentences, the words of each, and the tokens of all.
MAX_CHARACTERS, MAX_SENTENCES, MAX_WORDS, MAX_TOKENS = 4000, 10, 80, 240
ALL_LAYERS = "layers"
BRANCHING_BIASES = ("right", "none", "ranges")
SYMBOLS = ("$", "#", "&")  # words of the Penn Treebank's text that are neither letters nor digits
WARM_UP = " ".join(["the company said it expects to report a loss"] * 2)


@dataclass(frozen=True)
class Choices:
    """What a user chooses beside the text.

    Attributes:
        model: its name on the page.
        layer: the layer that makes the tree, counted from 1; `None` where the model has no choice.
        bias: see `tree_from_distances`.
        treebank: whether sentences are spelt as Penn Treebank text before they are read.
        beside: what else is drawn beside the tree: nothing, the trees of `ALL_LAYERS`, or that of another model.
    """

    model: str
    layer: int | None = None
    bias: str = "right"
    treebank: bool = True
    beside: str = ""

    @property
    def maker(self) -> str:
        """What makes the tree: the model and, where it has a choice, the layer."""
        return self.model if self.layer is None else f"{self.model}, layer {self.layer}"

    def link(self, path: str, **text: str) -> str:
        """The address, relative to the page, of something with these choices and a text."""
        fields = {**text, **asdict(self), "treebank": int(self.treebank), "beside": self.beside or None}
        return f"{path}?{urlencode({name: value for name, value in fields.items() if value is not None})}"


class DemoModels:
    """The models of the page.

    Args:
        checkpoints: each model with its tokenizer, by its name on the page.
    """

    def __init__(self, checkpoints: Mapping[str, tuple[PreTrainedModel, PreTrainedTokenizerBase]]):
        self.checkpoints = dict(checkpoints)
        for model, tokenizer in self.checkpoints.values():  # the first call of a model takes several times as long
            analyze_sentences(model, tokenizer, [WARM_UP])

    @classmethod
    def load(cls, names: Sequence[str]) -> "DemoModels":
        """The models of these checkpoint folders or names on the Hub.

        Raises:
            FileNotFoundError, ValueError: if one of them cannot be loaded.
        """
        short_names = [Path(name).name for name in names]
        names_shown = short_names if len(set(short_names)) == len(names) else names
        return cls({shown: load_checkpoint(name) for shown, name in zip(names_shown, names, strict=True)})

    def layers(self, model: str) -> list[int]:
        """The layers to choose from, counted from 1."""
        config = self.checkpoints[model][0].config
        return [layer + 1 for layer in range(config.num_hidden_layers)] if config.parse_layer is not None else []

    def induces_trees(self, model: str) -> bool:
        return self.checkpoints[model][0].induces_trees

    def default_choices(self, model: str | None = None) -> Choices:
        """What is chosen where the user chooses nothing, or only the model."""
        model = model or next(iter(self.checkpoints))
        config = self.checkpoints[model][0].config
        return Choices(model, config.parse_layer + 1 if self.layers(model) else None)

    def choices(self, fields: Mapping[str, str]) -> Choices:
        """The choices in the fields of an address; an empty field is as none.

        Raises:
            ValueError: if there is no such choice.
        """
        model = fields.get("model") or next(iter(self.checkpoints))
        _check_choice("model", model, self.checkpoints)
        choices = self.default_choices(model)
        if fields.get("layer"):
            _check_choice("layer", fields["layer"], map(str, self.layers(model)))
            choices = replace(choices, layer=int(fields["layer"]))
        bias, treebank = fields.get("bias") or choices.bias, fields.get("treebank") or "1"
        _check_choice("bias", bias, BRANCHING_BIASES)
        _check_choice("treebank", treebank, ["0", "1"])
        beside = fields.get("beside", "")
        if beside:
            _check_choice("beside", beside, [ALL_LAYERS, *filter(self.induces_trees, self.checkpoints)])
        return replace(choices, bias=bias, treebank=treebank == "1", beside=beside)

    def analyze(self, text: str, choices: Choices) -> list[tuple[str, SentenceAnalysis]]:
        """The parts of a text, each a sentence or a bracketed tree, and what the model finds in them.

        Raises:
            ValueError: if the text is empty, too long or malformed.
        """
        model, tokenizer = self.checkpoints[choices.model]
        _check_length(text)
        parts = split_text(text)
        if not parts:
            raise ValueError("There is no sentence yet: type one and parse it.")
        if len(parts) > MAX_SENTENCES:
            raise ValueError(f"These are {len(parts)} sentences; at most {MAX_SENTENCES} can be parsed at a time.")
        sentences = [self._read(part, choices) for part in parts]
        _check_size(tokenizer, sentences)
        layer = None if choices.layer is None else choices.layer - 1
        return list(zip(parts, analyze_sentences(model, tokenizer, sentences, layer, choices.bias), strict=True))

    def trees_beside(self, analysis: SentenceAnalysis, choices: Choices) -> dict[str, InducedTree]:
        """The trees that are to be drawn beside that of the analysis, by their names."""
        if not choices.beside:
            return {}
        if choices.beside == ALL_LAYERS:
            return {name: tree for name, tree in analysis.trees_by_layer.items() if tree is not analysis.tree}
        model, tokenizer = self.checkpoints[choices.beside]
        words = list(analysis.reading.words)
        (tree,) = model.parse([words], tokenizer, branching_bias=choices.bias, progress=False)
        return {self.default_choices(choices.beside).maker: tree}

    def compare(self, grammatical: str, ungrammatical: str, choices: Choices) -> PairComparison:
        """Reads a minimal pair.

        Raises:
            ValueError: if a sentence is empty or too long.
        """
        model, tokenizer = self.checkpoints[choices.model]
        _check_length(grammatical + ungrammatical)
        pair = [self._spell(sentence.strip(), choices) for sentence in (grammatical, ungrammatical)]
        _check_size(tokenizer, pair)
        return compare_pair(model, tokenizer, *pair)

    def _read(self, part: str, choices: Choices) -> str | GoldTree:
        gold = read_gold_tree(part)
        if gold is None:
            return self._spell(part, choices)
        return spell_gold_tree(gold, lambda word: self._spell(word, choices))

    def _spell(self, sentence: str, choices: Choices) -> str:
        if not choices.treebank:
            return sentence
        tokenizer = self.checkpoints[choices.model][1]
        known = [symbol for symbol in SYMBOLS if tokenizer.convert_tokens_to_ids(symbol) != tokenizer.unk_token_id]
        return spell_as_treebank(sentence, symbols=known)


def _check_choice(name: str, value: str, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        raise ValueError(f"There is no {name} {value[:40]!r} here; there is {', '.join(known) or 'none to choose'}.")


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"The text has {len(text):,} characters; at most {MAX_CHARACTERS:,} can be read at a time.")


def _check_size(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str | GoldTree]) -> None:
    """The time of a request grows with its tokens, and the width of a picture with the words of its sentence."""
    num_tokens = 0
    for sentence in sentences:
        words, ids, _ = encode(tokenizer, sentence)
        if not words:
            raise ValueError("There is a sentence without words.")
        if len(words) > MAX_WORDS:
            first_words = " ".join(words[:5])[:40]
            raise ValueError(
                f"The sentence that begins with {first_words!r} has {len(words)} words; at most {MAX_WORDS} can be "
                "parsed."
            )
        num_tokens += len(ids)
    if num_tokens > MAX_TOKENS:
        raise ValueError(
            f"The text has {num_tokens} words, or pieces that its words have for this model; at most {MAX_TOKENS} can "
            "be read at a time."
        )
