"""The trees that a classifier of ListOps induces on its way to the value."""

import inspect
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from onlstm_hf.logic.listops import ListOpsExpression
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from training.classification.batches import Example, collate
from training.classification.task import rows_by_length


def induced_trees(
    model: PreTrainedModel, examples: Sequence[Example], expressions: Sequence[ListOpsExpression], batch_size: int
) -> list[InducedTree] | None:
    """Returns the trees of the layer that `parse` uses; `None` if the model has no distances.

    Args:
        model: a classifier of sequences around `model.model`.
        examples: the expressions without round brackets, encoded.
        expressions: the same, for their tokens.
        batch_size: expressions in one pass.
    """
    if "output_distances" not in inspect.signature(model.model.forward).parameters:
        return None
    trees: list[InducedTree | None] = [None] * len(examples)
    with evaluation_mode(model):
        for rows in rows_by_length(examples, batch_size):
            inputs = collate([examples[index] for index in rows])
            distances = _distances(model, inputs["input_ids"], inputs["attention_mask"]).float().cpu()
            for index, found in zip(rows, distances, strict=True):
                tokens = expressions[index].tokens
                trees[index] = tree_from_distances(found[: len(tokens)].tolist(), tokens)
    return trees


def _distances(model: PreTrainedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    outputs = model.model(
        input_ids.to(model.device), attention_mask=attention_mask.to(model.device), output_distances=True
    )
    layer = model.config.parse_layer
    return outputs.distances if layer is None else outputs.forget_distances[layer]
