"""The fields of a run on ListOps."""

from dataclasses import dataclass
from typing import ClassVar

from training.classification.recipe import ClassifierOptimizationArguments, ClassifierRunArguments
from training.loop.recipe import NewModelArguments, Recipe, fixed, recorded
from training.loop.recipe_parser import parse_groups


@dataclass
class ListOpsDataArguments:
    """The expressions."""

    _argument_group_name: ClassVar[str] = "data"

    expressions: str | None = recorded(
        "Folder with the files train_d20s.tsv and test_d20s.tsv of Nangia & Bowman (2018). Without it expressions are "
        "generated.",
        None,
    )
    num_train: int = fixed("Expressions to train on that are generated.", 90_000, at_least=1)
    num_test: int = fixed("Expressions to test on that are generated.", 10_000, at_least=1)
    num_validation: int = fixed("Further expressions, which choose the best epoch.", 2_000, at_least=1)
    expressions_seed: int = fixed("Seed of the expressions that are generated.", 0, at_least=0)
    max_train_length: int | None = fixed(
        "Longest expressions, in tokens, to train and validate on; the test has all lengths.", None, at_least=1
    )
    round_brackets: bool = fixed(
        "Give the model the binary tree in round brackets, which a Tree-LSTM needs, and others must find.", False
    )


def parse_listops_recipe(arguments: list[str]) -> Recipe:
    """Reads a recipe as `parse_groups` does, with the same errors."""
    groups = (ListOpsDataArguments, NewModelArguments, ClassifierOptimizationArguments, ClassifierRunArguments)
    return Recipe(*parse_groups(arguments, groups, "train_listops.py", "Trains a model of ListOps."))
