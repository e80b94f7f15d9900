"""Recipe fields common to all tasks, and the parser of recipe files and command-line overrides."""

import json
import operator
import re
from argparse import ArgumentParser, ArgumentTypeError
from copy import copy
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import yaml
from transformers import HfArgumentParser

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


class RecipeLoader(yaml.SafeLoader):
    """Safe YAML loader that refuses duplicate keys, and reads `1e-3` as a number, as YAML 1.2 does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise ValueError(f"{self.name} has {name} in line {lines[name]} and in line {line}: leave out one")
            lines[name] = line
        return super().construct_mapping(node, deep)


RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+$"), None)


class RecipeParser(HfArgumentParser):
    """Argument parser that raises a `ValueError` instead of ending the process.

    Options begin with two hyphens. An argument with one hyphen is a value, such as the tag `-NONE-`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile("-[^-]")  # otherwise argparse takes these values for options
        for action in self._actions:
            if action.nargs == "+":
                action.nargs = "*"  # allows an empty list: `dropped_tags: []`

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")

    @staticmethod
    def _parse_dataclass_field(parser: ArgumentParser, field: Field) -> None:
        # The base class passes all metadata to `add_argument`, which knows only `help`.
        field = copy(field)
        field.metadata = {"help": field.metadata["help"]}
        HfArgumentParser._parse_dataclass_field(parser, field)


def parse_groups(arguments: list[str], groups: tuple[type, ...], program: str, description: str) -> list:
    """Reads an instance of each group from the arguments `[recipe.yaml] [--name value ...]` of a program.

    The groups are dataclasses of fields. `--model.NAME VALUE` changes the one that is a `ModelFields`. A `ValueError`
    names unknown or duplicate keys and values of the wrong type.
    """
    parser = RecipeParser(
        groups,
        prog=program,
        usage="accelerate launch training/%(prog)s RECIPE.yaml [--name value ...]",
        description=f"{description} Every field can be set in the recipe file or on the command line.",
        allow_abbrev=False,
    )
    if arguments and not arguments[0].startswith("-"):
        arguments = [*read_recipe(Path(arguments[0])), *arguments[1:]]
    if sum(argument.partition("=")[0] == "--model" for argument in arguments) > 1:
        raise ValueError("change the fields of the model one by one: --model.hidden_size 650")
    for option in {argument.partition("=")[0] for argument in arguments}:
        if option.startswith("--model."):
            parser.add_argument(option, type=_yaml_value)
    *values, unknown = parser.parse_args_into_dataclasses(
        arguments, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        raise ValueError(f"unknown arguments: {' '.join(unknown)}; see {program} --help")
    if len(values) > len(groups):  # the last is a namespace of `--model.NAME`
        changes = vars(values.pop())
        (fields,) = (value.model for value in values if isinstance(value, ModelFields))
        fields.update({name.removeprefix("model."): value for name, value in changes.items()})
    return values


def read_recipe(path: Path) -> list[str]:
    """Returns the fields of a recipe file as command-line arguments."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {path}")
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, RecipeLoader) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of field names to values")
    if not isinstance(content.get("model") or {}, dict):
        raise ValueError(f"the model section of {path} must be a mapping of configuration fields to values")
    arguments: list[str] = []
    for name, value in content.items():
        if isinstance(value, list):
            arguments += [f"--{name}", *map(str, value)]
        elif isinstance(value, dict):
            arguments.append(f"--{name}={json.dumps(value)}")
        elif value is not None:
            # YAML reads a bare `no`, which mixed_precision also accepts, as false.
            arguments.append(f"--{name}={('no', 'yes')[value] if isinstance(value, bool) else value}")
    return arguments


def _yaml_value(text: str) -> Any:
    try:
        return yaml.load(text, RecipeLoader)
    except yaml.YAMLError as error:
        raise ArgumentTypeError(f"{text} is no YAML: {error}") from error
