"""Trees of a grammar, and their form in files."""

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

# Rule of the distances that represent trees in files. It can yield every binary tree.
STORED_RULE = "none"


def parse_sentences(
    model: NeuralGrammar, sentences: EncodedSentences, batch_size: int, progress: bool | None = False
) -> list[InducedTree]:
    """Returns the binary tree of each sentence whose spans have the largest sum of probabilities.

    It maximises the expected number of correct spans (Goodman 1996). `batch_size` counts words.
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
    """Returns binary trees with a description of the model, for tree files and rank files."""
    distances = [distances_of_tree(tree, STORED_RULE) for tree in trees]
    return SentenceDistances([tree.words for tree in trees], {None: distances}, None, description, STORED_RULE)
