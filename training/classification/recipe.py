"""Recipe fields of classifiers, with their defaults."""

from dataclasses import dataclass
from typing import ClassVar

from training.loop.recipe import NewModelArguments, Recipe, RunArguments, UpdateArguments, recorded, with_default
from training.loop.recipe_parser import parse_groups


@dataclass
class ClassifierOptimizationArguments(UpdateArguments):
    """Adam. The learning rate is halved when validation does not improve."""

    optimizer: ClassVar[str] = "adam"
    average_from_start: ClassVar[bool] = False
    schedule: ClassVar[str] = "plateau"
    plateau_factor: ClassVar[float] = 0.5
    warmup_steps: ClassVar[int] = 0

    learning_rate: float = with_default(UpdateArguments, "learning_rate", 0.001)
    adam_epsilon: float = with_default(UpdateArguments, "adam_epsilon", 1e-9)
    max_grad_norm: float = with_default(UpdateArguments, "max_grad_norm", 1.0)
    batch_size: int = with_default(UpdateArguments, "batch_size", 128)
    num_epochs: int = with_default(UpdateArguments, "num_epochs", 50)
    patience: int = recorded(
        "The learning rate is halved after more than this many validations without improvement.", 2, at_least=1
    )

    @property
    def plateau_patience(self) -> int:
        return self.patience


@dataclass
class ClassifierRunArguments(RunArguments):
    """Fields of every run."""

    eval_batch_size: int = with_default(RunArguments, "eval_batch_size", 512)


def parse_classifier_recipe(data: type, program: str, description: str, arguments: list[str]) -> Recipe:
    """Reads a recipe whose data fields are those of the dataclass `data`. See `parse_groups` for the errors."""
    groups = (data, NewModelArguments, ClassifierOptimizationArguments, ClassifierRunArguments)
    return Recipe(*parse_groups(arguments, groups, program, description))
