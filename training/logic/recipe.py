"""The fields of a run on logical inference, from a recipe file and the command line."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from training.loop.recipe import NewModelArguments, OutputArguments, check_ranges, parse_groups

PROGRAM = "train_logic.py"


@dataclass
class LogicDataArguments:
    """The pairs."""

    _argument_group_name: ClassVar[str] = "data"

    pairs: str | None = field(
        default=None,
        metadata={
            "help": "Folder with the files train0 ... test12 of Bowman et al. (2015), or the folder or Hub name of an "
            "HF dataset with such splits. Without it pairs are generated."
        },
    )
    num_pairs: int = field(default=249_000, metadata={"help": "Pairs that are generated."})
    pairs_seed: int = field(default=0, metadata={"help": "Seed of the pairs that are generated."})
    max_train_operators: int = field(default=6, metadata={"help": "Train on pairs of at most so many operators."})
    holdout_every: int = field(
        default=10, metadata={"help": "One training pair in so many is held out: they choose the best epoch."}
    )


@dataclass
class LogicOptimizationArguments:
    """How the weights are updated: Adam, the learning rate halved where validation does not improve."""

    _argument_group_name: ClassVar[str] = "optimization"

    learning_rate: float = field(default=0.001, metadata={"help": "First learning rate."})
    adam_beta1: float = field(default=0.9, metadata={"help": "Adam's first-moment decay."})
    adam_beta2: float = field(default=0.999, metadata={"help": "Adam's second-moment decay."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "Adam's epsilon."})
    weight_decay: float = field(default=1.2e-6, metadata={"help": "L2 penalty."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Gradients are clipped to this norm."})
    patience: int = field(
        default=2, metadata={"help": "The learning rate is halved after more epochs than these without improvement."}
    )
    batch_size: int = field(default=128, metadata={"help": "Pairs of a batch in each process."})
    num_epochs: int = field(default=50, metadata={"help": "Passes over the training pairs."})
    mixed_precision: Literal["no", "bf16", "fp16"] = field(default="no", metadata={"help": "Autocast dtype."})
    seed: int = field(default=1111, metadata={"help": "Seed of initialisation, dropout and order."})


@dataclass
class LogicRunArguments(OutputArguments):
    """Where results go, and what a run says of itself."""

    eval_batch_size: int = field(default=512, metadata={"help": "Pairs of a batch in validation and test."})


# A run that is resumed has its place by these.
FIXED_BY_A_RUN = (
    "model_type",
    "model",
    "num_pairs",
    "pairs_seed",
    "max_train_operators",
    "holdout_every",
    "batch_size",
    "seed",
)


@dataclass
class LogicRecipe:
    """All arguments of a run, by group.

    Raises:
        ValueError: if a value is out of its range.
    """

    data: LogicDataArguments
    model: NewModelArguments
    optimization: LogicOptimizationArguments
    run: LogicRunArguments

    def __post_init__(self):
        check_ranges(self.fields())

    def fields(self) -> dict[str, Any]:
        """The fields of all groups by name, as they are written in a recipe file."""
        return {name: value for group in asdict(self).values() for name, value in group.items()}


def parse_logic_recipe(arguments: list[str]) -> LogicRecipe:
    """Reads a recipe as `recipe.parse_recipe` does, with the fields of logical inference."""
    groups = (LogicDataArguments, NewModelArguments, LogicOptimizationArguments, LogicRunArguments)
    return LogicRecipe(*parse_groups(arguments, groups, PROGRAM, "Trains a model of logical inference."))
