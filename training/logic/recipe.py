"""The fields of a run on logical inference."""

from dataclasses import dataclass
from typing import ClassVar

from training.loop.recipe import (
    NewModelArguments,
    Recipe,
    RunArguments,
    UpdateArguments,
    fixed,
    recorded,
    with_default,
)
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
    max_train_operators: int = fixed("Train on pairs of at most so many operators.", 6, at_least=0)
    holdout_every: int = fixed("One training pair in so many is held out: they choose the best epoch.", 10, at_least=2)


@dataclass
class LogicOptimizationArguments(UpdateArguments):
    """Adam, the learning rate halved where validation does not improve."""

    optimizer: ClassVar[str] = "adam"
    schedule: ClassVar[str] = "plateau"
    warmup_steps: ClassVar[int] = 0

    learning_rate: float = with_default(UpdateArguments, "learning_rate", 0.001)
    adam_epsilon: float = with_default(UpdateArguments, "adam_epsilon", 1e-9)
    max_grad_norm: float = with_default(UpdateArguments, "max_grad_norm", 1.0)
    batch_size: int = with_default(UpdateArguments, "batch_size", 128)
    num_epochs: int = with_default(UpdateArguments, "num_epochs", 50)
    patience: int = recorded(
        "The learning rate is halved after more checks than these without improvement.", 2, at_least=1
    )

    @property
    def plateau_patience(self) -> int:
        return self.patience


@dataclass
class LogicRunArguments(RunArguments):
    """As for every run."""

    eval_batch_size: int = with_default(RunArguments, "eval_batch_size", 512)


@dataclass
class LogicRecipe(Recipe):
    """All arguments of a run, by group.

    Raises:
        ValueError: if a value is out of its range.
    """

    data: LogicDataArguments
    model: NewModelArguments
    optimization: LogicOptimizationArguments
    run: LogicRunArguments


def parse_logic_recipe(arguments: list[str]) -> LogicRecipe:
    """Reads a recipe as `parse_groups` does, with the same errors and those of `LogicRecipe`."""
    groups = (LogicDataArguments, NewModelArguments, LogicOptimizationArguments, LogicRunArguments)
    return LogicRecipe(*parse_groups(arguments, groups, "train_logic.py", "Trains a model of logical inference."))
