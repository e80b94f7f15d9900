"""The trees that a classifier of ListOps induces on its way to the value."""

import inspect
from collections.abc import Sequence

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

    `examples` are the expressions, encoded without round brackets.
    """
    if "output_distances" not in inspect.signature(model.model.forward).parameters:
        return None
    trees: list[InducedTree | None] = [None] * len(examples)
    with evaluation_mode(model):
        for rows in rows_by_length(examples, batch_size):
            inputs = {name: part.to(model.device) for name, part in collate([examples[i] for i in rows]).items()}
            outputs = model.model(inputs["input_ids"], attention_mask=inputs["attention_mask"], output_distances=True)
            layer = model.config.parse_layer
            distances = outputs.distances if layer is None else outputs.forget_distances[layer]
            for index, found in zip(rows, distances.float().cpu(), strict=True):
                tokens = expressions[index].tokens
                trees[index] = tree_from_distances(found[: len(tokens)].tolist(), tokens)
    return trees
