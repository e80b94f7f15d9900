"""The trees that a grammar gives sentences, and files of them."""

from __future__ import annotations

from typing import Any

import torch

from onlstm_hf.trees.averaging import best_trees
from onlstm_hf.trees.distances import distances_of_tree
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.tree_files import SentenceDistances
from onlstm_hf.utils.iteration import progress_bar
from training.grammar.model import NeuralGrammar
from training.grammar.sentences import EncodedSentences, groups_of_one_length

# The rule by which distances stand for the trees in files: it makes every binary tree.
STORED_RULE = "none"


def parse_sentences(
    model: NeuralGrammar, sentences: EncodedSentences, batch_size: int, progress: bool | None = False
) -> list[InducedTree]:
    """The binary tree of each sentence whose spans have the highest sum of probabilities under the grammar.

    It has the highest expected number of right spans (Goodman 1996). `batch_size` counts words.
    """
    trees = [InducedTree.from_spans(words, ()) for words in sentences.words]
    longer = [index for index, ids in enumerate(sentences.ids) if len(ids) > 2]
    groups = groups_of_one_length(longer, sentences.ids, batch_size)
    for group in progress_bar(groups, description="parsing", unit="batch", shown=progress):
        input_ids = torch.tensor([sentences.ids[index] for index in group], device=model.device)
        marginals = model.span_marginals(input_ids).double().cpu().numpy()
        best = best_trees(marginals, [sentences.words[index] for index in group], ties="right")
        for index, tree in zip(group, best, strict=True):
            trees[index] = tree
    return trees


def stored_trees(trees: list[InducedTree], **description: Any) -> SentenceDistances:
    """Binary trees as files of trees and of ranks have them, with what is to be known of the model."""
    distances = [distances_of_tree(tree, STORED_RULE) for tree in trees]
    return SentenceDistances([tree.words for tree in trees], {None: distances}, None, description, STORED_RULE)
