"""Recipe fields common to all tasks, and their ranges."""

import json
import operator
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal

from onlstm_hf.utils.programs import MAX_THREADS

_COMPARISONS = {"at_least": operator.ge, "above": operator.gt, "below": operator.lt}
OnResume = Literal["fixed", "recorded", "free"]


def _field(on_resume: OnResume, description: str, default: Any = MISSING, **limits: float) -> Any:
    """Returns a dataclass field of a recipe, with its help text and the effect of another value in a resumed run.

    Without a default every recipe must name the field. `limits` of a value that is not `None` are `at_least`, `above`
    or `below` a number.
    """
    metadata = {"help": description, "on_resume": on_resume, **limits}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


# A resumed run refuses another value, because model, tokenizer, position in the data or optimiser state depend on it.
fixed = partial(_field, "fixed")
# A resumed run uses the new value from then on, and the results record the change.
recorded = partial(_field, "recorded")
# The value may change, because no result depends on it.
free = partial(_field, "free")


def with_default(group: type, name: str, default: Any) -> Field:
    """Returns a field of another group with another default."""
    metadata = {item.name: item.metadata for item in fields(group)}
    return field(default=default, metadata=metadata[name])


def check_ranges(group: Any) -> None:
    """Raises a `ValueError` that names a field whose value is out of range."""
    for item in fields(group):
        value = getattr(group, item.name)
        for limit, holds in _COMPARISONS.items():
            if value is not None and limit in item.metadata and not holds(value, item.metadata[limit]):
                raise ValueError(f"{item.name} must be {limit.replace('_', ' ')} {item.metadata[limit]}, not {value}")


@dataclass
class ModelFields:
    """Configuration fields of a new model, for a script that trains a single model type."""

    _argument_group_name: ClassVar[str] = "model"
    model_code: ClassVar[None] = None

    model: str = fixed("Mapping of configuration fields; override one with --model.hidden_size 650.", "{}")

    def __post_init__(self):
        self.model: dict[str, Any] = json.loads(self.model) if isinstance(self.model, str) else self.model


@dataclass
class NewModelArguments(ModelFields):
    """Type, configuration fields, code and implementation of a new model."""

    model_type: str = fixed("Model type, as AutoConfig knows it.", "onlstm")
    model_code: str | None = recorded("Python file to run first, which registers a new model_type.", None)
    implementation: str = recorded(
        "auto: the fastest path; reference: the equations in the model's file; or a path such as triton.", "auto"
    )


@dataclass
class UpdateArguments:
    """Optimiser, learning rate and batches."""

    _argument_group_name: ClassVar[str] = "optimization"

    learning_rate: float = recorded("Peak learning rate.", 30.0, above=0, below=float("inf"))
    weight_decay: float = fixed(
        "L2 penalty (nt-asgd, sgd, adam) or decoupled decay (adamw).", 1.2e-6, at_least=0, below=float("inf")
    )
    adam_beta1: float = fixed("First-moment decay of adam and adamw.", 0.9, at_least=0, below=1)
    adam_beta2: float = fixed("Second-moment decay of adam and adamw.", 0.999, at_least=0, below=1)
    adam_epsilon: float = fixed("Epsilon of adam and adamw.", 1e-8, above=0)
    max_grad_norm: float = recorded("Gradients are clipped to this norm; inf disables clipping.", 0.25, above=0)
    batch_size: int = fixed("Rows of a batch in each process.", 20, at_least=1)
    gradient_accumulation_steps: int = fixed(
        "Batches per update, consecutive chunks of a stream. The loss is the mean over their tokens.", 1, at_least=1
    )
    num_epochs: int = recorded("Passes over the training data.", 1000, at_least=1)
    max_steps: int | None = recorded("Stop after this many updates, whatever the epoch.", None, at_least=1)
    mixed_precision: Literal["no", "bf16", "fp16"] = recorded("Autocast dtype.", "no")
    torch_compile: bool = recorded("Compile training, which takes minutes; for GPUs that wait for Python.", False)
    seed: int = fixed("Seed of initialisation, dropout and order.", 1111, at_least=0)

    @property
    def averages(self) -> bool:
        """Returns whether the run averages weights, from the first or a later step on."""
        return self.average_from_start or self.optimizer == "nt-asgd"


@dataclass
class RunArguments:
    """Output folder, validation, checkpoints and logging."""

    _argument_group_name: ClassVar[str] = "run"

    output_dir: str = free("Folder of the run: best/, last/, logs and results.json.")
    resume: bool = free("Resume from output_dir/last if it exists.", False)
    log_every_steps: int = free("Updates between two log entries.", 50, at_least=1)
    eval_every_steps: int | None = recorded("Updates between two validations; default: every epoch.", None, at_least=1)
    save_every_steps: int | None = free("Updates between writes of last/; also at each validation.", None, at_least=1)
    eval_batch_size: int = recorded("Rows of a batch in validation.", 10, at_least=1)
    trackers: list[str] = free("Trackers of Accelerate, for instance tensorboard.", [])
    num_threads: int | None = free("CPU threads of each process.", None, at_least=1, below=MAX_THREADS + 1)


@dataclass
class Recipe:
    """All arguments of a run, by group; a `ValueError` names a value out of range. Tasks define their own groups."""

    data: Any
    model: ModelFields
    optimization: UpdateArguments
    run: RunArguments

    def __post_init__(self):
        for group in self._groups():
            check_ranges(group)

    def _groups(self) -> tuple[Any, ...]:
        return self.data, self.model, self.optimization, self.run

    def fields(self, on_resume: OnResume | None = None) -> dict[str, Any]:
        """Returns the fields of all groups by name, as in a recipe file; with `on_resume` only those of this kind."""
        values = {name: value for group in self._groups() for name, value in asdict(group).items()}
        kinds = {item.name: item.metadata["on_resume"] for group in self._groups() for item in fields(group)}
        return {name: value for name, value in values.items() if on_resume in (None, kinds[name])}

    def defaults(self) -> dict[str, Any]:
        """Returns the default values of all optional fields, by name."""
        items = [item for group in self._groups() for item in fields(group)]
        lists = {item.name: item.default_factory() for item in items if item.default_factory is not MISSING}
        return lists | {item.name: item.default for item in items if item.default is not MISSING}
