"""Averaged trees as training targets: loss and held-out score."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.trees.distances import distances_of_tree
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from training.distillation.splitting_loss import Split, splits_of_tree, splitting_loss
from training.distillation.tree_batches import TreeBatch

# Shorter sentences have only one tree.
FEWEST_WORDS = 3
# Every 50th sentence is held out of training, to score the model.
HELD_OUT_EVERY = 50
# Name and type of the member of an average that has the right-branching trees.
RIGHT_BRANCHING = "right-branching"


@dataclass(frozen=True)
class TargetTrees:
    """Target trees, given by distances.

    Attributes:
        stored: sentences and distances; `stored.model` describes the averaged models.
        temperature: temperature of the splitting loss.
    """

    stored: SentenceDistances
    temperature: float

    @classmethod
    def read(cls, path: str | os.PathLike, temperature: float) -> TargetTrees:
        """Reads a file of `training/average_trees.py`, without sentences of fewer than `FEWEST_WORDS` words.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is of another kind, damaged, or has too few sentences.
        """
        stored = read_tree_file(path)
        if "averaged" not in stored.model or stored.branching_bias is None:
            raise ValueError(
                f"{path} has the distances of one model, not averaged trees: create these from several models with "
                "training/average_trees.py"
            )
        target_trees = cls(_chosen(stored, [len(words) >= FEWEST_WORDS for words in stored.sentences]), temperature)
        if len(target_trees.stored.sentences) < 2:
            raise ValueError(f"{path} has too few sentences of {FEWEST_WORDS} words or more")
        return target_trees

    @property
    def branching_bias(self) -> str:
        """Returns the rule that builds the trees from these distances."""
        return self.stored.branching_bias

    @property
    def text_fingerprint(self) -> str:
        """Returns the `fingerprint` of the parsed text."""
        return self.stored.model["text"]

    def lines(self) -> Iterator[str]:
        """Yields the trees as text for a `fingerprint`."""
        yield self.branching_bias
        for words, distances in zip(self.stored.sentences, self.stored.by_layer[None], strict=True):
            yield f"{' '.join(words)} {distances}"

    def split(self) -> tuple[TargetTrees, TargetTrees]:
        """Splits the trees into training and held-out ones (the first and every 50th after it)."""
        is_held_out = [index % HELD_OUT_EVERY == 0 for index in range(len(self.stored.sentences))]
        train = _chosen(self.stored, [not held_out for held_out in is_held_out])
        return replace(self, stored=train), replace(self, stored=_chosen(self.stored, is_held_out))

    @property
    def rules(self) -> tuple[str, ...]:
        """Returns the rules to train with: the trees' own rule, and `"none"`, which can yield every binary tree."""
        return tuple(dict.fromkeys((self.branching_bias, "none")))

    def trees(self) -> list[InducedTree]:
        """Returns the target trees."""
        return self.stored.trees(branching_bias=self.branching_bias)

    def splits(self) -> list[list[Split]]:
        """Returns the split decisions of each tree for all rules together."""
        splits = [splits_of_tree(distances, self.branching_bias) for distances in self.stored.by_layer[None]]
        for rule in self.rules[1:]:
            for splits_of_sentence, tree in zip(splits, self.trees(), strict=True):
                splits_of_sentence += splits_of_tree(distances_of_tree(tree, rule), rule)
        return splits

    def loss(self, model: PreTrainedModel, batch: TreeBatch) -> torch.Tensor:
        """Returns the splitting loss without dropout. Layers above the parsing layer are not run."""
        batch = TreeBatch(*(part.to(model.device) for part in batch))
        with evaluation_mode(model, gradients=True):
            distances, _ = model.syntactic_distances(batch.input_ids, attention_mask=batch.attention_mask)
        return splitting_loss(distances.float().gather(1, batch.first_tokens), batch.splits, self.temperature).mean()

    def score(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """Returns splitting loss and sentence F1 (in per cent, mean of the rules) of the model on these trees."""
        words = [list(words) for words in self.stored.sentences]
        predicted = [distances for _, (distances,) in model.sentence_distances(words, tokenizer, progress=False)]
        losses = []
        for distances, splits in zip(predicted, self.splits(), strict=True):
            splits = torch.tensor([(0, *split) for split in splits]).view(-1, 5)
            losses.append(splitting_loss(torch.tensor([distances]), splits, self.temperature).item())
        induced = replace(self.stored, by_layer={None: predicted})
        target = self.trees()
        f1 = [tree_agreement([induced.trees(branching_bias=rule), target])[0, 1] for rule in self.rules]
        return {"held_out_tree_loss": sum(losses) / len(losses), "held_out_tree_f1": 100 * float(sum(f1) / len(f1))}

    def describe(self) -> dict[str, Any]:
        """Returns the description of the target trees for results and cards."""
        members = self.stored.model["averaged"]
        averaged = [member for member in members if member["model_type"] != RIGHT_BRANCHING]
        weights_of_models, weights = ([member["weight"] for member in group] for group in (averaged, members))
        model_types = {member["model"]: member["model_type"] for member in averaged}
        return {
            "num_models": len(model_types),
            "model_types": {kind: [*model_types.values()].count(kind) for kind in dict.fromkeys(model_types.values())},
            "num_averaged": len(averaged),
            "right_branching_share": 1 - sum(weights_of_models) / sum(weights),
            "num_sentences": len(self.stored.sentences),
            "held_out_every": HELD_OUT_EVERY,
            "branching_bias": self.branching_bias,
            "ties": self.stored.model.get("ties"),
            "command": self.stored.model["command"],
        }


def _chosen(stored: SentenceDistances, is_chosen: Sequence[bool]) -> SentenceDistances:
    """Returns the chosen sentences with their distances."""
    sentences, distances = (list(compress(items, is_chosen)) for items in (stored.sentences, stored.by_layer[None]))
    return replace(stored, sentences=sentences, by_layer={None: distances})
