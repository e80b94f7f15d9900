"""Trains a model of logical inference: `accelerate launch training/train_logic.py RECIPE.yaml [--name value ...]`.

The protocol is that of Shen et al. (2019): train on pairs with few operators, test on pairs with up to twelve.

A run writes to its `output_dir`:
    best/         the checkpoint with the highest validation accuracy, for `from_pretrained`
    last/         the newest checkpoint, also for `from_pretrained`, with the training state to resume from
    log.jsonl     one line for every log entry and validation
    results.json  the scores of best/ on the test pairs by number of operators, with the recipe
"""

import sys
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.logic.formulas import RELATIONS
from onlstm_hf.logic.scores import score_logic
from onlstm_hf.utils.files import fingerprint
from training.classification.batches import Example
from training.classification.logic import build_logic_tokenizer, encode_pairs, load_logic_splits, parse_logic_recipe
from training.classification.task import Classification, predict_labels
from training.loop.run import run_script, train


class LogicalInference(Classification):
    """Predicts the relation of two formulas of propositional logic."""

    name, unit, script = "logical_inference", "pairs", "train_logic.py"
    labels, takes_pairs = RELATIONS, True

    def build_tokenizer(self) -> PreTrainedTokenizerBase:
        return build_logic_tokenizer()

    def load_examples(self) -> list[Example]:
        self.splits = load_logic_splits(self.recipe.data)
        self.validation = encode_pairs(self.splits.validation, self.tokenizer)
        test = chain.from_iterable(self.splits.test.values())
        parts = {"training": self.splits.train, "validation": self.splits.validation, "test": test}
        self.fingerprints = {f"{name} pairs": fingerprint(map(" ".join, pairs)) for name, pairs in parts.items()}
        return encode_pairs(self.splits.train, self.tokenizer)

    def test_results(self, model: PreTrainedModel) -> dict[str, Any]:
        predictions, references, num_operators = [], [], []
        for number, pairs in self.splits.test.items():
            encoded = encode_pairs(pairs, self.tokenizer)
            predictions += predict_labels(model, encoded, self.recipe.run.eval_batch_size)
            references += [pair.relation for pair in pairs]
            num_operators += [number] * len(pairs)
        return {
            "test": score_logic(predictions, references, num_operators),
            "training_pairs": len(self.splits.train),
        }


main = partial(train, LogicalInference, parse_logic_recipe)

if __name__ == "__main__":
    run_script("train_logic.py", main)
