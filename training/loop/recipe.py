"""The fields that the recipes of all tasks share, and their ranges."""

import json
import operator
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

_COMPARISONS = {"at_least": operator.ge, "above": operator.gt, "below": operator.lt}


def argument(description: str, default: Any = MISSING, *, fixed: bool = False, **limits: float) -> Any:
    """A field of a recipe.

    Args:
        description: its help text.
        default: its value where a recipe does not name it; without one every recipe must.
        fixed: whether a run that is resumed must have the same value, because its place in the batches or the state
            of its optimiser depends on it.
        limits: what its value must be, unless it is `None`: `at_least`, `above` or `below` so much.
    """
    metadata = {"help": description, "fixed": fixed, **limits}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def with_default(group: type, name: str, default: Any) -> Field:
    """A field of another group with another default."""
    known = {item.name: item for item in fields(group)}
    return field(default=default, metadata=known[name].metadata)


def check_ranges(group: Any) -> None:
    """Raises a `ValueError` for a field, by its name, whose value is beyond its limits."""
    for item in fields(group):
        value = getattr(group, item.name)
        for limit, holds in _COMPARISONS.items():
            if value is not None and limit in item.metadata and not holds(value, item.metadata[limit]):
                raise ValueError(f"{item.name} must be {limit.replace('_', ' ')} {item.metadata[limit]}, not {value}")


@dataclass
class NewModelArguments:
    """A new model from configuration fields."""

    _argument_group_name: ClassVar[str] = "model"

    model_type: str = argument("Model type, as AutoConfig knows it.", "onlstm", fixed=True)
    model_code: str | None = argument(
        "Python file that is run first: it registers a new model_type with the Auto classes.", None
    )
    model: str = argument(
        "Fields of its configuration, a mapping; override one with --model.hidden_size 650.", "{}", fixed=True
    )

    def __post_init__(self):
        self.model: dict[str, Any] = json.loads(self.model) if isinstance(self.model, str) else self.model


@dataclass
class UpdateArguments:
    """How the weights are updated."""

    _argument_group_name: ClassVar[str] = "optimization"

    learning_rate: float = argument("Peak learning rate.", 30.0, above=0, below=float("inf"))
    weight_decay: float = argument(
        "L2 penalty (nt-asgd, adam) or decoupled decay (adamw).", 1.2e-6, at_least=0, below=float("inf")
    )
    adam_beta1: float = argument("First-moment decay of adam and adamw.", 0.9, at_least=0, below=1)
    adam_beta2: float = argument("Second-moment decay of adam and adamw.", 0.999, at_least=0, below=1)
    adam_epsilon: float = argument("Epsilon of adam and adamw.", 1e-8, above=0)
    max_grad_norm: float = argument("Gradients are clipped to this norm; inf switches that off.", 0.25, above=0)
    batch_size: int = argument("Rows of a batch in each process.", 20, at_least=1, fixed=True)
    gradient_accumulation_steps: int = argument(
        "Batches of one update, a mean over all that they predict. In a stream they are consecutive chunks: the state "
        "goes on from one to the next, the gradient does not.",
        1,
        at_least=1,
        fixed=True,
    )
    num_epochs: int = argument("Passes over the training data.", 1000, at_least=1)
    max_steps: int | None = argument("Stop after this many updates, whatever the epoch.", None, at_least=1)
    mixed_precision: Literal["no", "bf16", "fp16"] = argument("Autocast dtype.", "no")
    seed: int = argument("Seed of initialisation, dropout and order.", 1111, at_least=0, fixed=True)


@dataclass
class RunArguments:
    """Where results go, how often the run looks at itself, and what it says of itself."""

    _argument_group_name: ClassVar[str] = "run"

    output_dir: str = argument("Folder of the run: best/, last/, logs and results.json.")
    resume: bool = argument("Go on from output_dir/last where it exists.", False)
    log_every_steps: int = argument("Updates between two log entries.", 50, at_least=1)
    eval_every_steps: int | None = argument("Validate this often; default every epoch.", None, at_least=1)
    save_every_steps: int | None = argument(
        "Write output_dir/last this often in addition to every validation.", None, at_least=1
    )
    eval_batch_size: int = argument("Rows of a batch in validation.", 10, at_least=1)
    trackers: list[str] = argument("Trackers of Accelerate, for instance tensorboard.", [])
    num_threads: int | None = argument("CPU threads of each process.", None, at_least=1)


@dataclass
class Recipe:
    """All arguments of a run, by group. Each task has a subclass with groups of its own.

    Raises:
        ValueError: if a value is out of its range.
    """

    data: Any
    model: NewModelArguments
    optimization: UpdateArguments
    run: RunArguments

    def __post_init__(self):
        for group in self._groups():
            check_ranges(group)

    def _groups(self) -> tuple[Any, ...]:
        return self.data, self.model, self.optimization, self.run

    def fields(self) -> dict[str, Any]:
        """The fields of all groups by name, as they are written in a recipe file."""
        return {name: value for group in self._groups() for name, value in asdict(group).items()}

    def fixed_fields(self) -> dict[str, Any]:
        """Those that must not change when the run is resumed."""
        values = self.fields()
        return {
            item.name: values[item.name]
            for group in self._groups()
            for item in fields(group)
            if item.metadata.get("fixed")
        }
