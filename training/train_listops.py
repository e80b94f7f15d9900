"""Trains a model of ListOps: `accelerate launch training/train_listops.py RECIPE.yaml [--name value ...]`.

The value of an expression with nested lists (Nangia & Bowman 2018) is one of ten classes. A model without gold trees
must find the lists itself. For models that induce trees, the results state how well the trees fit.
"""

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf import build_word_tokenizer
from onlstm_hf.logic.listops import (
    BRACKETS,
    END,
    OPERATIONS,
    VALUES,
    ListOpsExpression,
    generate_listops,
    read_listops_file,
)
from onlstm_hf.scoring.listops import score_listops, score_listops_trees
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.files import fingerprint
from onlstm_hf.utils.iteration import progress_bar
from training.classification.batches import Example, collate, encode_examples, rows_by_length
from training.classification.task import Classification, parse_classifier_recipe
from training.loop.recipe import fixed, recorded
from training.loop.run import run_script, train


@dataclass
class ListOpsDataArguments:
    """Source and number of the expressions."""

    _argument_group_name: ClassVar[str] = "data"

    expressions: str | None = recorded("Folder with train_d20s.tsv and test_d20s.tsv. Default: generate them.", None)
    num_train: int = fixed("Number of generated training expressions.", 90_000, at_least=1)
    num_test: int = fixed("Number of generated test expressions.", 10_000, at_least=1)
    num_validation: int = fixed("Number of validation expressions, which choose the best epoch.", 2_000, at_least=1)
    expressions_seed: int = fixed("Seed of the generated expressions.", 0, at_least=0)
    max_train_length: int | None = fixed("Longest expressions outside the test, in tokens.", None, at_least=1)
    round_brackets: bool = fixed("Give the model the binary tree in round brackets, which a Tree-LSTM needs.", False)


parse_listops_recipe = partial(
    parse_classifier_recipe, ListOpsDataArguments, "train_listops.py", "Trains a model of ListOps."
)


def build_listops_tokenizer() -> PreTrainedTokenizerBase:
    """Builds a tokenizer of round brackets, operations, the end of a list, and digits, in this order."""
    return build_word_tokenizer(vocabulary=[*BRACKETS, *OPERATIONS, END, *VALUES])


def load_listops_splits(arguments: ListOpsDataArguments) -> dict[str, list[ListOpsExpression]]:
    """Reads or generates the expressions of a recipe: `train`, `validation` and `test`, without overlap."""
    if arguments.expressions is None:
        total = arguments.num_train + arguments.num_validation + arguments.num_test
        expressions = generate_listops(total, arguments.expressions_seed)
        generated = list(progress_bar(expressions, total=total, unit="expression"))
        test, train = generated[: arguments.num_test], generated[arguments.num_test :]
    else:
        train, test = (
            list(dict.fromkeys(read_listops_file(Path(arguments.expressions, f"{name}_d20s.tsv"))))
            for name in ("train", "test")
        )
        tested = {expression.tokens for expression in test}
        train = [expression for expression in train if expression.tokens not in tested]
    longest = arguments.max_train_length
    validation, train = (
        [expression for expression in part if longest is None or len(expression.tokens) <= longest]
        for part in (train[: arguments.num_validation], train[arguments.num_validation :])
    )
    if not (train and validation and test):
        raise ValueError("training, validation and test need at least one expression each")
    return {"train": train, "validation": validation, "test": test}


def encode_expressions(
    expressions: Sequence[ListOpsExpression], tokenizer: PreTrainedTokenizerBase, round_brackets: bool
) -> list[Example]:
    """Encodes expressions with or without round brackets. The labels are their values."""
    texts = (
        ((expression.brackets if round_brackets else " ".join(expression.tokens),), expression.value)
        for expression in expressions
    )
    return encode_examples(texts, tokenizer, "bracket, operation or digit")


def induced_trees(
    model: PreTrainedModel, examples: Sequence[Example], expressions: Sequence[ListOpsExpression], batch_size: int
) -> list[InducedTree] | None:
    """Returns the trees of the parsing layer; `None` if the model has no distances.

    `examples` are the expressions, encoded without round brackets.
    """
    has_distances = "output_distances" in inspect.signature(model.model.forward).parameters
    if not (has_distances and getattr(model.config, "parsing_network", True)):
        return None
    trees: list[InducedTree | None] = [None] * len(examples)
    layer = model.config.parse_layer
    with evaluation_mode(model):
        for rows in rows_by_length(examples, batch_size):
            inputs = collate([examples[index] for index in rows], model.device)
            outputs = model.model(inputs["input_ids"], attention_mask=inputs["attention_mask"], output_distances=True)
            distances = outputs.distances if layer is None else outputs.forget_distances[layer]
            for index, row in zip(rows, distances.float().cpu(), strict=True):
                tokens = expressions[index].tokens
                trees[index] = tree_from_distances(row[: len(tokens)].tolist(), tokens)
    return trees


class ListOps(Classification):
    """Predicts the value of an expression."""

    name, unit, script = "listops", "expressions", "train_listops.py"
    labels, takes_pairs = VALUES, False
    build_tokenizer = staticmethod(build_listops_tokenizer)

    def load_examples(self) -> list[Example]:
        self.splits, brackets = load_listops_splits(self.recipe.data), self.recipe.data.round_brackets
        self.fingerprints = {
            f"{name} expressions": fingerprint(" ".join(expression.tokens) for expression in expressions)
            for name, expressions in self.splits.items()
        }
        self.validation = encode_expressions(self.splits["validation"], self.tokenizer, brackets)
        return encode_expressions(self.splits["train"], self.tokenizer, brackets)

    def test_results(self, model: PreTrainedModel) -> dict[str, Any]:
        expressions, brackets = self.splits["test"], self.recipe.data.round_brackets
        examples = encode_expressions(expressions, self.tokenizer, brackets)
        trees = None if brackets else induced_trees(model, examples, expressions, self.recipe.run.eval_batch_size)
        return {
            "test": score_listops(self.predict_labels(model, examples), expressions),
            "trees": None if trees is None else score_listops_trees(trees, expressions),
            "training_expressions": len(self.splits["train"]),
        }


main = partial(train, ListOps, parse_listops_recipe)

if __name__ == "__main__":
    run_script("train_listops.py", main)
