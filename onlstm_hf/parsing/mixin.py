"""`parse()`: the constituency trees of sentences that a language model induces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils.logging import get_logger

from ..text.sentence_splitting import MAX_SEVERAL, count_several
from ..text.word_alignment import unknown_words
from ..trees.distances import tree_from_distances
from ..trees.drawing import distances_to_svg
from ..trees.induced_tree import InducedTree, TreeList
from ..trees.punctuation import check_punctuation
from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import bounded_windows, progress_bar
from ..utils.tokenizer_check import check_tokenizer
from .sentences import (
    MAX_TOKENS_PER_BATCH,
    MAX_TOKENS_PER_WINDOW,
    SentenceUnits,
    batches,
    build_tree,
    first_of_each_unit,
    is_one_sentence,
    read_text,
    read_words,
    token_ids,
)

logger = get_logger(__name__)

# Sentences are encoded and sorted by length window by window, so that memory is bounded on any input.
BATCHES_PER_WINDOW = 64
Sentences = Iterable[str | Sequence[str] | Sequence[int] | torch.Tensor]


class ParsingMixin:
    """Adds `parse` to a model with `syntactic_distances(input_ids, attention_mask, state, layer)`."""

    induces_trees = True

    def parse(
        self,
        sentences: str | Sequence[int] | torch.Tensor | Sentences,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        layer: int | None = None,
        branching_bias: str = "right",
        punctuation: str = "drop",
        units: str = "words",
        batch_size: int = 64,
        max_length: int | None = None,
        progress: bool | None = None,
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
        )
        return trees[0] if is_single else TreeList(trees)

    def parse_layers(
        self,
        sentences: Sentences,
        tokenizer: PreTrainedTokenizerBase | None = None,
        layers: Sequence[int | None] = (None,),
        *,
        branching_bias: str = "right",
        punctuation: str = "drop",
        **options,
    ) -> list[list[InducedTree]]:
        """Returns for each layer the trees of the sentences, which the model reads once; arguments as for `parse`."""
        tree_from_distances([], [], branching_bias)  # refuses an unknown bias before anything is read
        check_punctuation(punctuation)
        if punctuation != "drop" and options.get("units", "words") != "words":
            raise ValueError(f'punctuation={punctuation!r} needs units="words": marks are tokens themselves')
        trees: list[list[InducedTree]] = [[] for _ in layers]
        for sentence, distances_by_layer in self.sentence_distances(sentences, tokenizer, layers, **options):
            for trees_of_layer, distances in zip(trees, distances_by_layer, strict=True):
                trees_of_layer.append(build_tree(sentence, distances, branching_bias, punctuation))
        return trees

    def sentence_distances(
        self,
        sentences: Sentences,
        tokenizer: PreTrainedTokenizerBase | None = None,
        layers: Sequence[int | None] = (None,),
        *,
        units: str = "words",
        batch_size: int = 64,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Iterator[tuple[SentenceUnits, list[list[float]]]]:
        """Yields each sentence with the distances of its units in several layers; arguments as for `parse`.

        The model reads every sentence once, in windows of sentences, so that memory is bounded for any number of them.
        """
        for layer in layers:
            self.resolve_layer(layer)  # refuses unknown layers
        if units not in ("words", "tokens"):
            raise ValueError(f'units must be "words" or "tokens", not {units!r}')
        max_length = MAX_TOKENS_PER_BATCH if max_length is None else max_length
        for name, value in {"batch_size": batch_size, "max_length": max_length}.items():
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
        if not isinstance(tokenizer, PreTrainedTokenizerBase | None):
            raise ValueError(f"tokenizer must be one of AutoTokenizer.from_pretrained, not {type(tokenizer).__name__}")
        if tokenizer is not None:
            check_tokenizer(tokenizer, self.config)
        encoded = (self._encode(sentence, tokenizer, units) for sentence in sentences)
        windows = bounded_windows(
            encoded, batch_size * BATCHES_PER_WINDOW, lambda sentence: len(sentence.input_ids), MAX_TOKENS_PER_WINDOW
        )
        start_ids = [*token_ids(self.config, "eos"), *token_ids(tokenizer, "eos")][:1]
        num_sentences = len(sentences) if hasattr(sentences, "__len__") else None
        with progress_bar(total=num_sentences, unit="sentence", shown=progress) as bar:
            for number, window in enumerate(windows):
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

        Takes the arguments of `parse` and a heading; returns an SVG document, which `save_figure` (trees/drawing.py)
        writes to a file.
        """
        (tree,), trees_by_layer = self.parse_by_layer([sentence], tokenizer, layer=layer, **options)
        distances = [tree.distances for (tree,) in trees_by_layer.values()]
        return distances_to_svg(tree, distances, list(trees_by_layer), title)

    def parse_by_layer(
        self,
        sentences: Sentences,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        layer: int | None = None,
        **options,
    ) -> tuple[list[InducedTree], dict[str, list[InducedTree]]]:
        """Returns the trees of one layer, as `parse` does, and those of every layer by its name in a figure."""
        chosen = self.resolve_layer(layer)
        if self.parse_layer is None:
            layers, names = [None], ["syntactic distances"]
        else:
            layers = range(self.config.num_hidden_layers)
            names = [f"layer {n + 1}{', which makes the tree' if n == chosen else ''}" for n in layers]
        by_layer = self.parse_layers(sentences, tokenizer, layers, **options)
        return by_layer[chosen], dict(zip(names, by_layer, strict=True))

    def resolve_layer(self, layer: int | None) -> int:
        """Returns the index of a layer (`parse_layer` for `None`) among those with distances of their own."""
        if self.parse_layer is None:
            if layer is not None:
                name = type(self).__name__
                raise ValueError(f"layer {layer} has no distances of its own: {name} has the same for all layers")
            return 0
        index, num_layers = self.parse_layer if layer is None else layer, self.config.num_hidden_layers
        if isinstance(index, bool | float) or index not in range(num_layers):
            raise ValueError(f"layer {index!r} does not exist: this model's layers are 0 to {num_layers - 1}")
        return index

    def _encode(self, sentence, tokenizer: PreTrainedTokenizerBase | None, units: str) -> SentenceUnits:
        if hasattr(sentence, "tolist"):  # a row of a tensor or array
            sentence = sentence.tolist()
        is_list = isinstance(sentence, list | tuple)
        is_ids = is_list and all(isinstance(item, int) and not isinstance(item, bool) for item in sentence)
        if not (isinstance(sentence, str) or is_ids or (is_list and all(isinstance(item, str) for item in sentence))):
            given = f"{type(sentence).__name__} {str(sentence)[:60]}"
            raise ValueError(f"a sentence must be a string, a list of words, or a list of integer ids, not {given}")
        if is_ids:
            input_ids = _strip_special_tokens(sentence, self.config, tokenizer)
        elif tokenizer is None:
            raise ValueError("parsing strings or words needs the tokenizer: model.parse(..., tokenizer=tokenizer)")
        else:
            words = read_text(tokenizer, sentence) if isinstance(sentence, str) else read_words(tokenizer, sentence)
            if units == "words":
                return words
            input_ids = words.input_ids
        places = list(range(len(input_ids)))
        if tokenizer is None:
            return SentenceUnits(list(map(str, input_ids)), input_ids, places)
        names = tokenizer.convert_ids_to_tokens(input_ids)
        names = [str(token) if name is None else name for token, name in zip(input_ids, names, strict=True)]
        return SentenceUnits(names, input_ids, places, unknown_words(tokenizer, input_ids, places))

    def _unit_distances(
        self, batch: list[SentenceUnits], start_ids: list[int], max_length: int, layers: Sequence[int | None]
    ) -> list[list[list[float]]]:
        """Returns the distances of the units, for each sentence of a batch and each layer."""
        if not any(sentence.input_ids for sentence in batch):
            return [[[] for _ in layers] for _ in batch]
        rows = [torch.tensor(start_ids + sentence.input_ids, dtype=torch.long) for sentence in batch]
        input_ids = pad_sequence(rows, batch_first=True)
        attention_mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)

        pieces, state = [], None
        layer = layers[0] if len(layers) == 1 else layers
        size = self.config.vocab_size
        outside = input_ids[(input_ids < 0) | (input_ids >= size)]
        if outside.numel():  # the model does not check input on a GPU
            hint = "does the tokenizer belong to this model?"
            raise ValueError(f"a sentence has the id {outside[0]}, which is outside the vocabulary of {size}: {hint}")
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


def _strip_special_tokens(ids: Sequence[int], *owners: PreTrainedConfig | PreTrainedTokenizerBase | None) -> list[int]:
    """Removes special tokens and padding before the first and after the last word."""
    special = {token for owner in owners for kind in ("bos", "eos", "pad") for token in token_ids(owner, kind)}
    positions = [position for position, token in enumerate(ids) if token not in special]
    return list(ids[positions[0] : positions[-1] + 1]) if positions else []


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
