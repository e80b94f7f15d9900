"""Trains a model of ListOps: `accelerate launch training/train_listops.py RECIPE.yaml [--name value ...]`.

The value of an expression with nested lists (Nangia & Bowman 2018) is one of ten classes. A model without gold trees
must find the lists itself. For models that induce trees, the results state how well the trees fit.

A run writes to its `output_dir`:
    best/         the checkpoint with the highest validation accuracy, for `from_pretrained`
    last/         the newest checkpoint, also for `from_pretrained`, with the training state to resume from
    log.jsonl     one line for every log entry and validation
    results.json  accuracy of best/ on the test expressions by depth and length, how well its trees fit, and the recipe
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.logic.listops import VALUES
from onlstm_hf.scoring.listops import score_listops, score_listops_trees
from onlstm_hf.utils.files import fingerprint
from training.classification.batches import Example
from training.classification.listops import (
    build_listops_tokenizer,
    encode_expressions,
    induced_trees,
    load_listops_splits,
    parse_listops_recipe,
)
from training.classification.task import Classification, predict_labels
from training.loop.run import run_script, train


class ListOps(Classification):
    """Predicts the value of an expression."""

    name, unit, script = "listops", "expressions", "train_listops.py"
    labels, takes_pairs = VALUES, False

    def build_tokenizer(self) -> PreTrainedTokenizerBase:
        return build_listops_tokenizer()

    def load_examples(self) -> list[Example]:
        self.splits = load_listops_splits(self.recipe.data)
        self.fingerprints = {
            f"{name} expressions": fingerprint(" ".join(expression.tokens) for expression in expressions)
            for name, expressions in self.splits._asdict().items()
        }
        brackets = self.recipe.data.round_brackets
        self.validation = encode_expressions(self.splits.validation, self.tokenizer, brackets)
        return encode_expressions(self.splits.train, self.tokenizer, brackets)

    def test_results(self, model: PreTrainedModel) -> dict[str, Any]:
        expressions, brackets = self.splits.test, self.recipe.data.round_brackets
        batch_size = self.recipe.run.eval_batch_size
        examples = encode_expressions(expressions, self.tokenizer, brackets)
        predictions = predict_labels(model, examples, batch_size)
        trees = None if brackets else induced_trees(model, examples, expressions, batch_size)
        return {
            "test": score_listops(predictions, expressions),
            "trees": None if trees is None else score_listops_trees(trees, expressions),
            "training_expressions": len(self.splits.train),
        }


main = partial(train, ListOps, parse_listops_recipe)

if __name__ == "__main__":
    run_script("train_listops.py", main)
