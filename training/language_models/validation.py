"""Validation during and after training: held-out text and gold trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.scoring.stream import StreamScore, stream_log_likelihood
from onlstm_hf.text.unknown_words import unknown_words
from onlstm_hf.trees.tree_files import SentenceDistances
from onlstm_hf.trees.treebank import GoldTree, Preprocessing, gold_trees_from_brackets, preprocessing_of, read_treebank
from training.language_models.recipe import DataArguments, TextArguments
from training.language_models.text_batches import load_dataset_column, load_texts, text_of


@dataclass(frozen=True)
class HeldOutText:
    """Held-out sentences, scored as the model is trained: as one stream `[N]`, or each from an empty state."""

    sentences: list[str]
    stream: torch.Tensor
    tokenizer: PreTrainedTokenizerBase
    independent: bool

    def score(self, model: PreTrainedModel, batch_size: int, progress: bool | None = False) -> StreamScore:
        """Returns the log-likelihood of the text.

        For a stream it depends slightly on `batch_size`, since each row starts from an empty state.
        """
        if not self.independent:
            return stream_log_likelihood(model, self.stream, batch_size, progress=progress)
        scored = score_sentences(model, self.tokenizer, self.sentences, batch_size, progress)
        totals = [score.total() for score in scored]
        # The stream has no lines without a token, such as lines of dropped punctuation.
        log_likelihoods = [total.total_log_likelihood for total in totals if total.num_tokens > 1]
        return StreamScore(sum(log_likelihoods), len(self.stream))


def held_out_sentences(data: DataArguments) -> dict[str, list[str]]:
    """Returns the `"validation"` and `"test"` sentences that the recipe names."""
    parts = {part: load_texts(data, part) for part in ("validation", "test")}
    return {
        part: [text for item in texts if (text := text_of(item, data.text_column)).strip()]
        for part, texts in parts.items()
        if texts is not None
    }


def store_preprocessing(data: TextArguments, config: PreTrainedConfig) -> None:
    """Writes the preprocessing of gold trees into a model's configuration; that of the papers is `None`.

    It is that of the recipe, of the checkpoint, or of the papers.
    """
    preprocessing = preprocessing_of(
        data.treebank_preset,
        config.treebank_preprocessing,
        dropped_tags=data.dropped_tags,
        lowercase=data.treebank_lowercase,
        digits=data.treebank_digits,
        function_tag_separators=data.function_tag_separators,
    )
    config.treebank_preprocessing = None if preprocessing == Preprocessing() else preprocessing.to_dict()


def load_gold_trees(data: TextArguments, config: PreTrainedConfig) -> list[GoldTree] | None:
    """Reads gold trees from a file or a column of the validation split; `None` if the recipe names none.

    They are read as `store_preprocessing` says. Sentences without a word are left out.
    """
    preprocessing = preprocessing_of(None, config.treebank_preprocessing)
    if data.gold_trees is not None:
        trees = read_treebank(data.gold_trees, preprocessing)
    elif data.gold_tree_column is not None:
        column = data.gold_tree_column
        rows = load_dataset_column(data, "validation", column)
        trees = gold_trees_from_brackets((text_of(row, column) for row in rows), preprocessing)
    else:
        return None
    return [tree for tree in trees if tree.words]


def distances_of_layers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str | list[str]],
    layers: Sequence[int | None] | None = None,
    progress: bool | None = None,
    **description: Any,
) -> SentenceDistances:
    """Computes the syntactic distances of sentences for some layers (counted from 0), by default all.

    `[None]` stands for layers that share their distances. The result includes the `description` of the model.
    """
    if layers is None:
        layers = [None] if model.parse_layer is None else range(model.config.num_hidden_layers)
    by_layer: dict[int | None, list[list[float]]] = {layer: [] for layer in layers}
    words = []
    for sentence, distances_by_layer in model.sentence_distances(sentences, tokenizer, layers, progress=progress):
        words.append(tuple(sentence.units))
        for stored, distances in zip(by_layer.values(), distances_by_layer, strict=True):
            stored.append(distances)
    model_description = {
        "model_type": model.config.model_type,
        "num_parameters": model.num_parameters(),
        "unknown_words": unknown_words(tokenizer, sentences),
        **description,
    }
    if model.config.treebank_preprocessing is not None:
        model_description["treebank_preprocessing"] = model.config.treebank_preprocessing
    parse_layer = model.parse_layer if model.parse_layer in by_layer else next(iter(by_layer))
    return SentenceDistances(words, by_layer, parse_layer, model_description)
