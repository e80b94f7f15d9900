"""`parse()`: the constituency trees of sentences that a language model induces."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from os import PathLike
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import get_logger

from ..text.sentence_splitting import MAX_SEVERAL, count_several
from ..text.word_alignment import encode_words, unknown_words
from ..trees.distances import tree_from_distances
from ..trees.drawing import distances_to_svg
from ..trees.induced_tree import InducedTree, TreeList
from ..trees.punctuation import check_punctuation
from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar
from ..utils.tokenizer_check import check_tokenizer
from .sentences import (
    MAX_TOKENS_PER_BATCH,
    SentenceUnits,
    batches,
    build_tree,
    first_of_each_unit,
    is_one_sentence,
    read_text,
    sentence_windows,
    token_ids,
    token_names,
)

logger = get_logger(__name__)

# Sentences are encoded and sorted by length window by window, so that memory is bounded on any input.
BATCHES_PER_WINDOW = 64


class ParsingMixin:
    """Adds `parse` to a model with `syntactic_distances(input_ids, attention_mask, state, layer, ...)`.

    `distances_by_layer(output)` returns the distances in a model output, which also has the logits.
    """

    induces_trees = True

    def parse(
        self,
        sentences: str | Sequence[int] | torch.Tensor | Iterable[str | Sequence[str] | Sequence[int] | torch.Tensor],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        layer: int | None = None,
        branching_bias: str = "right",
        punctuation: str = "drop",
        units: str = "words",
        batch_size: int = 64,
        max_length: int | None = None,
        progress: bool | None = None,
        **unknown_options,
    ) -> InducedTree | list[InducedTree]:
        """Returns the constituency trees that the model induces.

        Each sentence follows one `<eos>` (if the model or the tokenizer has one), as at the start of a line of the
        training text. `tree_from_distances` builds a binary tree from the words' syntactic distances. With a subword
        tokenizer, a word's distance is that of its first subword, as no constituent ends inside a word.

        Args:
            sentences: one sentence, as a string or as token ids (a list or a tensor); or several sentences, each a
                string, a list of words, or token ids (a list, or a row of a padded tensor). A list of strings is
                always a list of sentences; put the words of one sentence in a nested list. A generator is read lazily.
                `<bos>`, `<eos>` and padding at both ends of token ids are removed.
            tokenizer: needed for strings and words; with token ids it only names the tokens.
            layer: layer whose distances are used, counted from 0; the configuration's `parse_layer` by default. A PRPN
                takes none, as its layers share their distances.
            branching_bias: `"right"`, the papers' rule, `"none"` or `"ranges"` (see `tree_from_distances`).
            punctuation: how to treat punctuation marks in a string. `"drop"`, the papers' protocol, removes them;
                `"attach"` attaches them to the tree as treebanks do (`attach_marks`); `"cue"` removes them, but raises
                the distance of each word after a mark (`raise_at_marks`). In lists of words and token ids, every item
                is a leaf.
            units: what the leaves are: `"words"`, or `"tokens"` for the tokenizer's own (sub)words. The leaves of a
                sentence given as token ids are always its tokens.
            batch_size: sentences per forward pass. Long sentences get smaller batches.
            max_length: how many tokens of a sentence the model reads at a time; the next ones continue from its state.
                This bounds memory and does not change the trees. `MAX_TOKENS_PER_BATCH` by default.
            progress: whether to show a progress bar; by default on a terminal, for jobs of more than two seconds.
                `False` also turns off the warnings of unknown words and of strings with several sentences.
            unknown_options: refused; the error names the supported options.

        Returns:
            An `InducedTree` for one sentence, a `TreeList` in the input's order for several.

        Raises:
            ValueError: if the input, an option or the tokenizer is invalid, or the model computes NaN.
        """
        is_table = isinstance(sentences, Mapping) or hasattr(sentences, "columns")
        if is_table or not isinstance(sentences, Iterable):
            raise ValueError(
                "sentences must be a string, token ids or a list of sentences, not a "
                f"{type(sentences).__name__} (give a tokenizer's input_ids, or a column of a table)"
            )

        is_single = is_one_sentence(sentences)
        (trees,) = self.parse_layers(
            [sentences] if is_single else sentences,
            tokenizer,
            [layer],
            branching_bias=branching_bias,
            punctuation=punctuation,
            units=units,
            batch_size=batch_size,
            max_length=max_length,
            progress=progress,
            **unknown_options,
        )
        return trees[0] if is_single else TreeList(trees)

    def parse_layers(
        self,
        sentences: Iterable[str | Sequence[str] | Sequence[int] | torch.Tensor],
        tokenizer: PreTrainedTokenizerBase | None = None,
        layers: Sequence[int | None] = (None,),
        *,
        branching_bias: str = "right",
        punctuation: str = "drop",
        **options,
    ) -> list[list[InducedTree]]:
        """Returns the trees of several layers; the model reads the sentences once.

        Args:
            sentences, tokenizer, branching_bias, punctuation: see `parse`.
            layers, options: see `sentence_distances`.

        Returns:
            For each layer, the trees of the sentences.
        """
        tree_from_distances([], [], branching_bias)  # refuses an unknown bias before anything is read
        check_punctuation(punctuation)
        if punctuation != "drop" and options.get("units", "words") != "words":
            raise ValueError(f'punctuation={punctuation!r} needs units="words": marks are tokens themselves')
        trees: list[list[InducedTree]] = [[] for _ in layers]
        for sentence, distances_by_layer in self._read_sentences(sentences, tokenizer, layers, **options):
            for trees_of_layer, distances in zip(trees, distances_by_layer, strict=True):
                trees_of_layer.append(build_tree(sentence, distances, branching_bias, punctuation))
        return trees

    def sentence_distances(
        self,
        sentences: Iterable[str | Sequence[str] | Sequence[int] | torch.Tensor],
        tokenizer: PreTrainedTokenizerBase | None = None,
        layers: Sequence[int | None] = (None,),
        **options,
    ) -> Iterator[tuple[list[str], list[list[float]]]]:
        """Yields the distances that define the trees of several layers, sentence by sentence.

        The model reads every sentence once, in windows of sentences, so that memory is bounded for any number of them.

        Args:
            sentences, tokenizer: see `parse`, also for the errors.
            layers: counted from 0; `None` is the configuration's `parse_layer`, or for a PRPN its only distances.
            options: `units`, `batch_size`, `max_length` and `progress` of `parse`.

        Yields:
            The units of a sentence (its words or tokens), and for each layer the distance of each unit.
        """
        for sentence, distances in self._read_sentences(sentences, tokenizer, layers, **options):
            yield sentence.units, distances

    def _read_sentences(
        self,
        sentences: Iterable[str | Sequence[str] | Sequence[int] | torch.Tensor],
        tokenizer: PreTrainedTokenizerBase | None,
        layers: Sequence[int | None],
        *,
        units: str = "words",
        batch_size: int = 64,
        max_length: int | None = None,
        progress: bool | None = None,
        **unknown_options,
    ) -> Iterator[tuple[SentenceUnits, list[list[float]]]]:
        """Yields `SentenceUnits`, and their distances as `sentence_distances` does."""
        refuse_unknown_options(self, unknown_options, parse_options(type(self)))
        if not layers:
            raise ValueError("layers is empty: name at least one layer")
        for layer in layers:
            self.name_layers(layer, range(self.config.num_hidden_layers))  # refuses unknown layers
        if units not in ("words", "tokens"):
            raise ValueError(f'units must be "words" or "tokens", not {units!r}')
        max_length = MAX_TOKENS_PER_BATCH if max_length is None else max_length
        for name, value in {"batch_size": batch_size, "max_length": max_length}.items():
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
        if not isinstance(tokenizer, PreTrainedTokenizerBase | None):
            name = str(tokenizer) if isinstance(tokenizer, str | PathLike) else "path/of/the/model"
            raise ValueError(
                f"tokenizer must be a tokenizer, not {type(tokenizer).__name__}; "
                f"AutoTokenizer.from_pretrained({name!r}) loads one"
            )
        if tokenizer is not None:
            check_tokenizer(tokenizer, self.config)
        encoded = (self._encode(sentence, tokenizer, units) for sentence in sentences)
        start_ids = [*token_ids(self.config, "eos"), *token_ids(tokenizer, "eos")][:1]
        num_sentences = len(sentences) if hasattr(sentences, "__len__") else None
        with progress_bar(total=num_sentences, unit="sentence", shown=progress) as bar:
            for number, window in enumerate(sentence_windows(encoded, batch_size * BATCHES_PER_WINDOW)):
                if number == 0 and progress is not False:
                    _warn_of_unknown_words(window, tokenizer)
                    _warn_of_several_sentences(window)
                distances: dict[int, list[list[float]]] = {}
                with evaluation_mode(self):  # not around `yield`: the mode holds for the whole thread
                    for batch in batches(window, batch_size):
                        rows = [window[index] for index in batch]
                        batch_distances = self._unit_distances(rows, start_ids, max_length, layers)
                        distances.update(zip(batch, batch_distances, strict=True))
                        bar.update(len(batch))
                for index, sentence in enumerate(window):
                    yield sentence, distances.pop(index)

    def draw_distances(
        self,
        sentence: str | Sequence[str] | Sequence[int],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        layer: int | None = None,
        title: str | None = None,
        **options,
    ) -> str:
        """Draws the papers' figure: a sentence's tree, and below it the distances of its words in every layer.

        Args:
            sentence, tokenizer, options: see `parse`.
            layer: the layer of the tree; the configuration's `parse_layer` by default.
            title: heading of the figure.

        Returns:
            An SVG document, which `save_figure` (trees/drawing.py) writes to a file.
        """
        (tree,), trees_by_layer = self.parse_by_layer([sentence], tokenizer, layer=layer, **options)
        distances = [tree.distances for (tree,) in trees_by_layer.values()]
        return distances_to_svg(tree, distances, list(trees_by_layer), title)

    def parse_by_layer(
        self,
        sentences: Sequence[str | Sequence[str] | Sequence[int]],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        layer: int | None = None,
        **options,
    ) -> tuple[list[InducedTree], dict[str, list[InducedTree]]]:
        """Returns the trees of one layer, and those of every layer by its name in a figure.

        Args:
            sentences, tokenizer, options: see `parse`.
            layer: the layer whose trees come first; the configuration's `parse_layer` by default.
        """
        if self.parse_layer is None:
            return self.name_layers(None, [self.parse(sentences, tokenizer, layer=layer, **options)])
        layers = range(self.config.num_hidden_layers)
        self.name_layers(layer, layers)  # refuses an unknown layer before anything is read
        return self.name_layers(layer, self.parse_layers(sentences, tokenizer, layers, **options))

    def name_layers(self, layer: int | None, by_layer: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the entry of one layer, and the entries of all layers by the layer's name in a figure.

        Args:
            layer: the layer of the tree; the configuration's `parse_layer` by default.
            by_layer: one entry for each layer; a single entry if all layers share their distances, as in a PRPN.

        Raises:
            ValueError: if the layer does not exist.
        """
        if self.parse_layer is None:
            if layer is not None:
                name = type(self).__name__
                raise ValueError(f"layer {layer} has no distances of its own: {name} has the same for all layers")
            return by_layer[0], {"syntactic distances": by_layer[0]}
        chosen = self.parse_layer if layer is None else layer
        if isinstance(chosen, bool | float) or chosen not in range(len(by_layer)):
            raise ValueError(f"layer {chosen!r} does not exist: this model's layers are 0 to {len(by_layer) - 1}")
        names = [f"layer {n + 1}{', which makes the tree' if n == chosen else ''}" for n in range(len(by_layer))]
        return by_layer[chosen], dict(zip(names, by_layer, strict=True))

    def _encode(self, sentence, tokenizer: PreTrainedTokenizerBase | None, units: str) -> SentenceUnits:
        if hasattr(sentence, "tolist"):  # a row of a tensor or array
            sentence = sentence.tolist()
        is_list = isinstance(sentence, list | tuple)
        is_ids = is_list and all(isinstance(item, int) and not isinstance(item, bool) for item in sentence)
        if not (isinstance(sentence, str) or is_ids or (is_list and all(isinstance(item, str) for item in sentence))):
            raise ValueError(
                "a sentence must be a string, a list of words, or a list of integer token ids, not "
                f"{type(sentence).__name__} {str(sentence)[:60]}"
            )
        if not is_ids and tokenizer is None:
            raise ValueError(
                "parsing strings or words needs the tokenizer: model.parse(sentences, tokenizer=tokenizer)"
            )
        read = None
        if isinstance(sentence, str):
            read = read_text(tokenizer, sentence)
        elif not is_ids:
            ids, word_of_token = encode_words(tokenizer, sentence)
            read = SentenceUnits(list(sentence), ids, word_of_token, unknown_words(tokenizer, ids, word_of_token))
        input_ids = self._strip_special_tokens(list(sentence), tokenizer) if read is None else read.input_ids

        vocab_size = self.config.vocab_size
        outside = [token for token in input_ids if not 0 <= token < vocab_size]
        if outside:
            raise ValueError(
                f"token id {outside[0]} is outside the model's vocabulary of {vocab_size}: "
                "the tokenizer does not belong to this model"
            )
        if read is not None and units == "words":
            return read
        places = list(range(len(input_ids)))
        unknown = None if tokenizer is None else unknown_words(tokenizer, input_ids, places)
        return SentenceUnits(token_names(input_ids, tokenizer), input_ids, places, unknown)

    def _strip_special_tokens(self, ids: list[int], tokenizer: PreTrainedTokenizerBase | None) -> list[int]:
        """Removes special tokens and padding before the first and after the last word."""
        owners = (self.config, tokenizer)
        special = {token for owner in owners for kind in ("bos", "eos", "pad") for token in token_ids(owner, kind)}
        positions = [position for position, token in enumerate(ids) if token not in special]
        return ids[positions[0] : positions[-1] + 1] if positions else []

    def _unit_distances(
        self,
        batch: list[SentenceUnits],
        start_ids: list[int],
        max_length: int,
        layers: Sequence[int | None],
    ) -> list[list[list[float]]]:
        """Returns the distances of the units, for each sentence of a batch and each layer."""
        if not any(sentence.input_ids for sentence in batch):
            return [[[] for _ in layers] for _ in batch]
        rows = [torch.tensor(start_ids + sentence.input_ids, dtype=torch.long) for sentence in batch]
        input_ids = pad_sequence(rows, batch_first=True)
        attention_mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)

        pieces, state = [], None
        layer = layers[0] if len(layers) == 1 else layers
        if self.device.type != "meta":  # the placeholder device of offloaded weights
            input_ids, attention_mask = input_ids.to(self.device), attention_mask.to(self.device)
        for ids, mask in zip(input_ids.split(max_length, dim=1), attention_mask.split(max_length, dim=1), strict=True):
            distances, state = self.syntactic_distances(ids, attention_mask=mask, state=state, layer=layer)
            pieces.append(distances.float().cpu())
        distances = torch.cat(pieces, dim=-1).view(len(layers), *input_ids.shape)
        if not distances.isfinite().all():
            raise ValueError("the model computed distances that are not finite: its weights contain NaN or infinity")
        by_sentence = distances[..., len(start_ids) :].transpose(0, 1).tolist()
        return [
            [first_of_each_unit(row, sentence.unit_of_token) for row in rows]
            for rows, sentence in zip(by_sentence, batch, strict=True)
        ]


def parse_options(model_class: type) -> list[str]:
    """Returns the names of the options of `parse`, including those that subclasses add."""
    methods = [vars(base)["parse"] for base in model_class.__mro__ if "parse" in vars(base)]
    parameters = [parameter for method in methods for parameter in inspect.signature(method).parameters.values()]
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


def refuse_unknown_options(model: PreTrainedModel, options: Iterable[str], supported: Sequence[str]) -> None:
    """Raises a `ValueError` for an unknown option of `parse`."""
    for name in options:
        if name not in supported:
            model_type, names = model.config.model_type, ", ".join(supported)
            raise ValueError(f'a model of type "{model_type}" has no option {name} in parsing, only {names}')


def _warn_of_several_sentences(strings: Sequence[SentenceUnits]) -> None:
    """Warns once per process if many strings have several sentences."""
    texts = [read.text for read in strings if read.text is not None]
    if count_several(texts) > MAX_SEVERAL * len(texts):
        logger.warning_once(
            "A string with several sentences is read as one sentence and gets one tree: "
            'pipeline("constituency-parsing", model=..., split_sentences=True) parses each of them'
        )


def _warn_of_unknown_words(sentences: Sequence[SentenceUnits], tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Warns once per process if most tokens are out of vocabulary, as in text of another language."""
    unknown = None if tokenizer is None else tokenizer.unk_token_id
    tokens = [token for sentence in sentences for token in sentence.input_ids]
    if unknown is not None and 2 * tokens.count(unknown) > len(tokens):
        logger.warning_once(
            "Most words are unknown to the model and replaced by its unknown token, so the trees say little. Does the "
            "text have the language and the spelling of the model's training text?"
        )
