"""Recipe fields of grammars."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from training.language_models.recipe import TextArguments, check_text_arguments
from training.loop.recipe import (
    ModelFields,
    Recipe,
    RunArguments,
    UpdateArguments,
    fixed,
    parse_groups,
    recorded,
    with_default,
)


@dataclass
class GrammarDataArguments(TextArguments):
    """Text, and the trees of other parsers for it."""

    streaming: ClassVar[bool] = False
    subwords: ClassVar[None] = None

    min_length: int = fixed("Shortest training sentences, in words.", 3, at_least=2)
    max_length: int = fixed("Longest training sentences, in words.", 40, at_least=2)
    votes: list[str] = recorded(
        "Files of training/average_trees.py with other parsers' trees of the text; FILE=WEIGHT counts as WEIGHT.", []
    )
    vote_strength: float = recorded(
        "A vote for a span multiplies the weight of its trees by exp(vote_strength).", 0.5, at_least=0
    )
    vote_branching_bias: Literal["right", "none"] = recorded("Rule that builds trees from voters' distances.", "right")
    parse_text: bool = recorded("Write the grammar's trees of the training text at the end (text.ranks.xz).", True)


@dataclass
class GrammarOptimizationArguments(UpdateArguments):
    """Adam with a constant learning rate."""

    optimizer: ClassVar[str] = "adam"
    average_from_start: ClassVar[bool] = False
    schedule: ClassVar[str] = "constant"
    warmup_steps: ClassVar[int] = 0
    mixed_precision: ClassVar[str] = "no"
    torch_compile: ClassVar[bool] = False

    learning_rate: float = with_default(UpdateArguments, "learning_rate", 0.003)
    adam_beta1: float = with_default(UpdateArguments, "adam_beta1", 0.75)
    weight_decay: float = with_default(UpdateArguments, "weight_decay", 0.0)
    max_grad_norm: float = with_default(UpdateArguments, "max_grad_norm", 3.0)
    batch_size: int = fixed("Words per batch in each process, in sentences of one length.", 1500, at_least=1)
    num_epochs: int = with_default(UpdateArguments, "num_epochs", 3)


@dataclass
class GrammarRunArguments(RunArguments):
    """Fields of every run, and the batch size of validation in words."""

    eval_batch_size: int = recorded("Words per batch in validation and parsing.", 6000, at_least=1)


class GrammarRecipe(Recipe):
    """All arguments of a run, by group. A `ValueError` names a contradiction."""

    def __post_init__(self):
        super().__post_init__()
        data = self.data
        check_text_arguments(data)
        if data.max_length < data.min_length:
            raise ValueError(f"max_length {data.max_length} is less than min_length {data.min_length}")


def parse_grammar_recipe(arguments: list[str]) -> GrammarRecipe:
    """Reads a recipe. See `parse_groups` and `GrammarRecipe` for the errors."""
    groups = (GrammarDataArguments, ModelFields, GrammarOptimizationArguments, GrammarRunArguments)
    return GrammarRecipe(*parse_groups(arguments, groups, "train_grammar.py", "Trains a neural grammar."))
