"""The models of the web page and what its users ask of them, within limits that keep it quick for everybody."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..text.spelling import spell_as_treebank
from ..trees.treebank import GoldTree
from ..utils.checkpoints import load_checkpoint
from .sentence_analysis import (
    PairComparison,
    SentenceAnalysis,
    analyze_sentences,
    compare_pair,
    encode,
    read_gold_tree,
    split_text,
)

# Of a request: its characters, its sentences, the words of each, and the tokens of all.
MAX_CHARACTERS, MAX_SENTENCES, MAX_WORDS, MAX_TOKENS = 4000, 10, 80, 240
BRANCHING_BIASES = ("right", "none", "ranges")
WARM_UP = " ".join(["the company said it expects to report a loss"] * 2)


@dataclass(frozen=True)
class Choices:
    """What a user chooses beside the text.

    Attributes:
        model: its name on the page.
        layer: the layer that makes the tree, counted from 1; `None` where the model has no choice.
        bias: see `tree_from_distances`.
        treebank: whether sentences are spelt as Penn Treebank text before they are read.
    """

    model: str
    layer: int | None = None
    bias: str = "right"
    treebank: bool = True

    def link(self, path: str, **text: str) -> str:
        """The address, relative to the page, of something with these choices and a text."""
        fields = {**text, **asdict(self), "treebank": int(self.treebank)}
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
        return replace(choices, bias=bias, treebank=treebank == "1")

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
        sentences = [read_gold_tree(part) or self._spell(part, choices) for part in parts]
        _check_size(tokenizer, sentences)
        layer = None if choices.layer is None else choices.layer - 1
        return list(zip(parts, analyze_sentences(model, tokenizer, sentences, layer, choices.bias), strict=True))

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

    @staticmethod
    def _spell(sentence: str, choices: Choices) -> str:
        return spell_as_treebank(sentence) if choices.treebank else sentence


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
