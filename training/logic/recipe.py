"""The fields of a run on logical inference."""

from dataclasses import dataclass
from typing import ClassVar

from training.classification.recipe import ClassifierOptimizationArguments, ClassifierRunArguments
from training.loop.recipe import NewModelArguments, Recipe, fixed, recorded
from training.loop.recipe_parser import parse_groups


@dataclass
class LogicDataArguments:
    """The pairs."""

    _argument_group_name: ClassVar[str] = "data"

    pairs: str | None = recorded(
        "Folder with the files train0 ... test12 of Bowman et al. (2015), or the folder or Hub name of an HF dataset "
        "with such splits. Without it pairs are generated.",
        None,
    )
    num_pairs: int = fixed("Pairs that are generated.", 249_000, at_least=1)
    pairs_seed: int = fixed("Seed of the pairs that are generated.", 0, at_least=0)
    max_train_operators: int = fixed("Largest number of operators of a training pair.", 6, at_least=0)
    holdout_every: int = fixed("One training pair in N is held out to choose the best epoch.", 10, at_least=2)


def parse_logic_recipe(arguments: list[str]) -> Recipe:
    """Reads a recipe as `parse_groups` does, with the same errors."""
    groups = (LogicDataArguments, NewModelArguments, ClassifierOptimizationArguments, ClassifierRunArguments)
    return Recipe(*parse_groups(arguments, groups, "train_logic.py", "Trains a model of logical inference."))
