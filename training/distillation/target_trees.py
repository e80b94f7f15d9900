"""The averaged trees of a file as what a model's own trees should be: the loss, and the score of held-out ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file
from training.distillation.ranking_loss import ranking_loss
from training.distillation.tree_batches import TreeBatch

# Every sentence of two words or fewer has the same tree.
FEWEST_WORDS = 3
# One sentence in so many is held out: the model is scored on its tree and not trained on it.
HELD_OUT_EVERY = 50


@dataclass(frozen=True)
class TargetTrees:
    """Target trees, given by distances.

    Attributes:
        stored: sentences and distances of the trees; `model` says what they are the average of.
        margin: of the ranking loss.
    """

    stored: SentenceDistances
    margin: float

    @classmethod
    def read(cls, path: str | os.PathLike, margin: float) -> TargetTrees:
        """Reads a file of `training/average_trees.py`. Sentences whose tree says nothing are left out.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is another kind of file, or damaged, or has too few sentences.
        """
        stored = read_tree_file(path)
        if "averaged" not in stored.model or stored.branching_bias is None:
            raise ValueError(
                f"{path} has the distances that one model gives, and no averaged trees: training/average_trees.py "
                "makes these of several such models"
            )
        target_trees = cls(_chosen(stored, [len(words) >= FEWEST_WORDS for words in stored.sentences]), margin)
        if len(target_trees.stored.sentences) < 2:
            raise ValueError(f"{path} has too few sentences of {FEWEST_WORDS} words or more")
        return target_trees

    @property
    def branching_bias(self) -> str:
        """The rule by which these distances, and then the model's, make the trees."""
        return self.stored.branching_bias

    @property
    def text_fingerprint(self) -> str:
        """The `fingerprint` of the text whose sentences were parsed."""
        return self.stored.model["text"]

    def lines(self) -> Iterator[str]:
        """The contents of the trees, for a `fingerprint`."""
        yield self.branching_bias
        for words, distances in zip(self.stored.sentences, self.stored.by_layer[None], strict=True):
            yield f"{' '.join(words)} {distances}"

    def split(self) -> tuple[TargetTrees, TargetTrees]:
        """Splits the trees into those to train on and those held out (the first one and every fiftieth after it)."""
        is_held_out = [index % HELD_OUT_EVERY == 0 for index in range(len(self.stored.sentences))]
        train = _chosen(self.stored, [not held_out for held_out in is_held_out])
        return replace(self, stored=train), replace(self, stored=_chosen(self.stored, is_held_out))

    def targets(self) -> list[torch.Tensor]:
        """The distances of each sentence's words; NaN for a first one whose distance the rule does not use."""
        targets = [torch.tensor(distances) for distances in self.stored.by_layer[None]]
        if self.branching_bias == "none":
            for target in targets:
                target[0] = torch.nan
        return targets

    def loss(self, model: PreTrainedModel, batch: TreeBatch) -> torch.Tensor:
        """The mean ranking loss of the sentences. The layers above the one that parses are not run."""
        distances, _ = model.syntactic_distances(
            batch.input_ids.to(model.device), attention_mask=batch.attention_mask.to(model.device)
        )
        return ranking_loss(distances.float(), batch.targets.to(model.device), self.margin).mean()

    def score(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """Returns ranking loss and sentence F1 (in per cent) of the model on held-out trees."""
        words = [list(words) for words in self.stored.sentences]
        distances = [own for _, (own,) in model.sentence_distances(words, tokenizer, progress=False)]
        rows = zip(distances, self.targets(), strict=True)
        losses = [ranking_loss(torch.tensor([own]), target[None], self.margin).item() for own, target in rows]
        induced = replace(self.stored, by_layer={None: distances})
        trees = (stored.trees(branching_bias=self.branching_bias) for stored in (induced, self.stored))
        f1 = 100 * float(tree_agreement([*trees])[0, 1])
        return {"held_out_tree_loss": sum(losses) / len(losses), "held_out_tree_f1": f1}

    def describe(self) -> dict[str, Any]:
        """Returns the description of the target trees for results and cards."""
        averaged = self.stored.model["averaged"]
        model_types = {member["model"]: member["model_type"] for member in averaged}
        return {
            "num_models": len(model_types),
            "model_types": {kind: [*model_types.values()].count(kind) for kind in dict.fromkeys(model_types.values())},
            "num_averaged": len(averaged),
            "num_sentences": len(self.stored.sentences),
            "held_out_every": HELD_OUT_EVERY,
            "branching_bias": self.branching_bias,
            "ties": self.stored.model.get("ties"),
            "command": self.stored.model["command"],
        }


def _chosen(stored: SentenceDistances, is_chosen: Sequence[bool]) -> SentenceDistances:
    """Some of the sentences."""
    sentences, distances = (list(compress(items, is_chosen)) for items in (stored.sentences, stored.by_layer[None]))
    return replace(stored, sentences=sentences, by_layer={None: distances})
