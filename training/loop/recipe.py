"""The fields of a training run, and how a recipe file and command-line overrides become one."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import yaml
from transformers import HfArgumentParser


@dataclass
class DataArguments:
    """The text, and how it is cut into batches."""

    _argument_group_name: ClassVar[str] = "data"

    dataset: str | None = field(
        default=None, metadata={"help": "HF dataset: a name on the Hub or a local folder. Or use train_files."}
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration name of the HF dataset."})
    text_column: str = field(default="text", metadata={"help": "Column of the HF dataset that holds the text."})
    train_split: str = field(
        default="train", metadata={"help": "Training split of the HF dataset; slices such as train[:1000] work."}
    )
    validation_split: str = field(default="validation", metadata={"help": "Validation split of the HF dataset."})
    test_split: str | None = field(default=None, metadata={"help": "Test split, scored once at the end."})
    train_files: list[str] | None = field(default=None, metadata={"help": "UTF-8 text files, one sentence a line."})
    validation_files: list[str] | None = field(default=None, metadata={"help": "Text files for validation."})
    test_files: list[str] | None = field(default=None, metadata={"help": "Text files scored once at the end."})
    gold_trees: str | None = field(
        default=None,
        metadata={
            "help": "Penn-style bracketed trees (.mrg file or folder): parsing F1 is reported, never selected on."
        },
    )
    gold_tree_column: str | None = field(
        default=None,
        metadata={"help": "The same from a column of the validation split: one bracketed tree a sentence."},
    )
    tokenizer: str | None = field(
        default=None,
        metadata={"help": "Name or folder of a tokenizer. Otherwise that of init_from, or one built from the text."},
    )
    vocab_size: int | None = field(
        default=None, metadata={"help": "Largest vocabulary of the tokenizer that is built."}
    )
    min_count: int = field(default=1, metadata={"help": "Least count of a word of the tokenizer that is built."})
    lowercase: bool = field(default=False, metadata={"help": "The tokenizer that is built lower-cases."})
    digits_to_n: bool = field(default=False, metadata={"help": "The tokenizer that is built writes numbers as N."})
    split: Literal["whitespace", "treebank", "characters"] = field(
        default="whitespace", metadata={"help": "What the words of the tokenizer that is built are."}
    )
    streaming: bool = field(
        default=False, metadata={"help": "Read the training text as it comes instead of holding it in memory."}
    )
    independent_sentences: bool = field(
        default=False,
        metadata={
            "help": "Train on padded sentences in random order instead of one stream with the state carried; "
            "perplexities are then those of sentences on their own, too."
        },
    )
    bptt_length: int = field(default=70, metadata={"help": "Tokens of a row in one training step (stream only)."})
    random_bptt: bool = field(
        default=True, metadata={"help": "Draw the length around bptt_length as the papers do, lr scaled with it."}
    )
    max_sentence_length: int = field(
        default=200, metadata={"help": "Independent sentences are cut after this many tokens in training."}
    )


@dataclass
class NewModelArguments:
    """A new model from configuration fields."""

    _argument_group_name: ClassVar[str] = "model"

    model_type: str = field(default="onlstm", metadata={"help": "Model type, as AutoConfig knows it."})
    model_code: str | None = field(
        default=None,
        metadata={"help": "Python file that is run first: it registers a new model_type with the Auto classes."},
    )
    model: str = field(
        default="{}",
        metadata={"help": "Fields of its configuration, a mapping; override one with --model.hidden_size 650."},
    )

    def __post_init__(self):
        self.model: dict[str, Any] = json.loads(self.model) if isinstance(self.model, str) else self.model


@dataclass
class ModelArguments(NewModelArguments):
    """The model: a new one from configuration fields, or an earlier checkpoint."""

    init_from: str | None = field(
        default=None, metadata={"help": "Start from the weights of this checkpoint folder (finetuning stage)."}
    )


@dataclass
class OptimizationArguments:
    """How the weights are updated."""

    _argument_group_name: ClassVar[str] = "optimization"

    optimizer: Literal["nt-asgd", "adam", "adamw"] = field(
        default="nt-asgd",
        metadata={"help": "nt-asgd: SGD, averaged once validation stops improving (Merity et al. 2018)."},
    )
    learning_rate: float = field(default=30.0, metadata={"help": "Peak learning rate."})
    weight_decay: float = field(
        default=1.2e-6, metadata={"help": "L2 penalty (nt-asgd, adam) or decoupled decay (adamw)."}
    )
    adam_beta1: float = field(default=0.9, metadata={"help": "First-moment decay of adam and adamw."})
    adam_beta2: float = field(default=0.999, metadata={"help": "Second-moment decay of adam and adamw."})
    adam_epsilon: float = field(default=1e-8, metadata={"help": "Epsilon of adam and adamw."})
    schedule: Literal["constant", "cosine", "plateau"] = field(
        default="constant",
        metadata={
            "help": "Learning rate after warm-up; cosine falls to 0 at the end, plateau halves it where validation "
            "does not improve."
        },
    )
    plateau_patience: int = field(
        default=2, metadata={"help": "plateau: checks without improvement before the one that halves the rate."}
    )
    warmup_steps: int = field(default=0, metadata={"help": "Steps of linear warm-up."})
    max_grad_norm: float = field(
        default=0.25, metadata={"help": "Gradients are clipped to this norm; inf switches that off."}
    )
    nonmonotone_interval: int = field(
        default=5, metadata={"help": "nt-asgd: average once validation is worse than the best of all but the last n."}
    )
    average_from_start: bool = field(
        default=False, metadata={"help": "nt-asgd: average from the first step on (finetuning stage)."}
    )
    stop_when_averaging_stalls: bool = field(
        default=False,
        metadata={"help": "nt-asgd: stop once the averaged weights stop improving by the same rule."},
    )
    batch_size: int = field(default=20, metadata={"help": "Rows of a batch in each process."})
    gradient_accumulation_steps: int = field(
        default=1,
        metadata={
            "help": "Batches of one update, a mean over their tokens. In a stream they are consecutive chunks: the "
            "state goes on from one to the next, the gradient does not."
        },
    )
    num_epochs: int = field(default=1000, metadata={"help": "Passes over the training text."})
    max_steps: int | None = field(default=None, metadata={"help": "Stop after this many updates, whatever the epoch."})
    mixed_precision: Literal["no", "bf16", "fp16"] = field(default="no", metadata={"help": "Autocast dtype."})
    seed: int = field(default=1111, metadata={"help": "Seed of initialisation, dropout and order."})


@dataclass
class OutputArguments:
    """Where results go, and what a run says of itself."""

    _argument_group_name: ClassVar[str] = "run"

    output_dir: str = field(metadata={"help": "Folder of the run: best/, last/, logs and results.json."})
    resume: bool = field(default=False, metadata={"help": "Go on from output_dir/last where it exists."})
    log_every_steps: int = field(default=50, metadata={"help": "Updates between two log entries."})
    trackers: list[str] = field(
        default_factory=list, metadata={"help": "Trackers of Accelerate, for instance tensorboard."}
    )
    num_threads: int | None = field(default=None, metadata={"help": "CPU threads of each process."})


@dataclass
class RunArguments(OutputArguments):
    """Where results go, and how often the run looks at itself."""

    eval_every_steps: int | None = field(default=None, metadata={"help": "Validate this often; default every epoch."})
    save_every_steps: int | None = field(
        default=None, metadata={"help": "Write output_dir/last this often in addition to every validation."}
    )
    eval_batch_size: int = field(default=10, metadata={"help": "Rows of the validation text."})
    test_batch_size: int = field(default=1, metadata={"help": "Rows of the test text."})


ARGUMENTS = (DataArguments, ModelArguments, OptimizationArguments, RunArguments)

SMALLEST_VALUES = {
    "vocab_size": 1,
    "min_count": 1,
    "bptt_length": 1,
    "max_sentence_length": 1,
    "weight_decay": 0,
    "adam_beta1": 0,
    "adam_beta2": 0,
    "warmup_steps": 0,
    "plateau_patience": 0,
    "nonmonotone_interval": 1,
    "batch_size": 1,
    "gradient_accumulation_steps": 1,
    "num_epochs": 1,
    "max_steps": 1,
    "seed": 0,
    "eval_every_steps": 1,
    "save_every_steps": 1,
    "eval_batch_size": 1,
    "test_batch_size": 1,
    "log_every_steps": 1,
    "num_threads": 1,
    "num_pairs": 1,
    "pairs_seed": 0,
    "max_train_operators": 0,
    "holdout_every": 2,
    "patience": 1,
}

# A run that is resumed has its place in batches and its optimiser's state by these.
FIXED_BY_A_RUN = (
    "model_type",
    "model",
    "streaming",
    "independent_sentences",
    "bptt_length",
    "random_bptt",
    "max_sentence_length",
    "optimizer",
    "batch_size",
    "gradient_accumulation_steps",
    "seed",
)


@dataclass
class Recipe:
    """All arguments of a run, by group.

    Raises:
        ValueError: if a value is out of its range, or fields contradict each other.
    """

    data: DataArguments
    model: ModelArguments
    optimization: OptimizationArguments
    run: RunArguments

    def __post_init__(self):
        check_ranges(self.fields())
        self._check_data()
        self._check_optimization()

    def fields(self) -> dict[str, Any]:
        """The fields of all groups by name, as they are written in a recipe file."""
        return {name: value for group in asdict(self).values() for name, value in group.items()}

    def _check_data(self) -> None:
        data = self.data
        if (data.dataset is None) == (data.train_files is None):
            raise ValueError("give either dataset or train_files")
        if data.train_files is not None and data.validation_files is None:
            raise ValueError("train_files need validation_files beside them")
        for name in ("validation_files", "test_files"):
            if data.dataset is not None and getattr(data, name) is not None:
                raise ValueError(f"{name} go with train_files; with a dataset give {name.replace('files', 'split')}")
        if data.gold_tree_column is not None and (data.dataset is None or data.gold_trees is not None):
            raise ValueError("gold_tree_column needs a dataset, and takes the place of gold_trees")
        if data.streaming and data.independent_sentences:
            raise ValueError("independent_sentences are sorted by length, which needs the whole text: not streaming")

    def _check_optimization(self) -> None:
        arguments = self.optimization
        if self.data.streaming and arguments.max_steps is None and arguments.schedule == "cosine":
            raise ValueError("a cosine schedule over streamed text needs max_steps: its length is not known")
        for name in ("average_from_start", "stop_when_averaging_stalls"):
            if arguments.optimizer != "nt-asgd" and getattr(arguments, name):
                raise ValueError(f"{name} is for the optimizer nt-asgd, not {arguments.optimizer}")


def check_ranges(values: dict[str, Any]) -> None:
    """Raises a `ValueError` for a number of a recipe, by the name of its field, that is out of its range."""
    for name, smallest in SMALLEST_VALUES.items():
        if values.get(name) is not None and not values[name] >= smallest:
            raise ValueError(f"{name} must be at least {smallest}, not {values[name]}")
    for name in ("learning_rate", "max_grad_norm", "adam_epsilon"):
        if not values[name] > 0:
            raise ValueError(f"{name} must be above 0, not {values[name]}")
    for name in ("adam_beta1", "adam_beta2"):
        if not values[name] < 1:
            raise ValueError(f"{name} must be below 1, not {values[name]}")
    for name in ("learning_rate", "weight_decay"):
        if not math.isfinite(values[name]):
            raise ValueError(f"{name} must be finite, not {values[name]}")


class RecipeParser(HfArgumentParser):
    """An argument parser whose errors are a `ValueError` instead of the end of the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def parse_recipe(arguments: list[str]) -> Recipe:
    """Reads a recipe from the command line: `recipe.yaml [--name value ...]`, later values overriding earlier ones.

    Raises:
        FileNotFoundError: if the recipe file does not exist.
        ValueError: for unknown keys, values of the wrong kind or out of range, or fields that contradict each other.
    """
    return Recipe(*parse_groups(arguments, ARGUMENTS, "train_lm.py", "Trains a language model."))


def parse_groups(arguments: list[str], groups: tuple[type, ...], program: str, description: str) -> list:
    """Reads one dataclass of fields after the other from `[recipe.yaml] [--name value ...]`.

    Args:
        arguments: of the command line.
        groups: the dataclasses; one of them is a `NewModelArguments`.
        program: the script's name, for its help and errors.
        description: what the script does, in a sentence.

    Raises:
        FileNotFoundError: if the recipe file does not exist.
        ValueError: for unknown keys and values of the wrong kind.
    """
    parser = RecipeParser(
        groups,
        prog=program,
        usage="accelerate launch training/%(prog)s RECIPE.yaml [--name value ...]",
        description=f"{description} Every field may stand in the recipe file and on the command line.",
        allow_abbrev=False,
    )
    texts: list[str] = []
    model_fields: dict[str, Any] = {}
    if arguments and not arguments[0].startswith("-"):
        texts, model_fields = _read_yaml(Path(arguments[0]), groups, program)
        arguments = arguments[1:]
    overrides, model_overrides = _split_model_overrides(arguments)
    model = json.dumps(model_fields | model_overrides)
    *values, unknown = parser.parse_args_into_dataclasses(
        [*texts, *overrides, "--model", model], return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        raise ValueError(f"unknown arguments: {' '.join(unknown)}; see {program} --help")
    return values


def _read_yaml(path: Path, groups: tuple[type, ...], program: str) -> tuple[list[str], dict[str, Any]]:
    """A recipe file as command-line arguments, and its `model` section."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {path}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of field names to values")
    model_fields = content.pop("model", None) or {}
    if not isinstance(model_fields, dict):
        raise ValueError(f"the model section of {path} must be a mapping of configuration fields to values")
    known = {item.name for group in groups for item in fields(group)}
    unknown = sorted(str(name) for name in set(content) - known)
    if unknown:
        raise ValueError(f"{path} has unknown fields: {', '.join(unknown)}; see {program} --help")
    texts: list[str] = []
    for name, value in content.items():
        if isinstance(value, list):
            texts += [f"--{name}", *map(str, value)] if value else []
        elif value is not None:
            # YAML reads a bare `no`, which is also a value of mixed_precision, as false.
            texts.append(f"--{name}={('no', 'yes')[value] if isinstance(value, bool) else value}")
    return texts, {name: _model_value(value) for name, value in model_fields.items()}


def _split_model_overrides(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Takes `--model.name value` and `--model.name=value` out of command-line arguments."""
    others: list[str] = []
    model_fields: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--model" or argument.startswith("--model="):
            raise ValueError("override fields of the model one by one: --model.hidden_size 650")
        if not argument.startswith("--model."):
            others.append(argument)
            continue
        name, equals, value = argument.removeprefix("--model.").partition("=")
        value = value if equals else next(remaining, "")
        if not value or value.startswith("--"):
            raise ValueError(f"--model.{name} needs a value")
        model_fields[name] = _model_value(yaml.safe_load(value))
    return others, model_fields


def _model_value(value: Any) -> Any:
    """A value as YAML reads it, except that numbers such as 1e-3, which YAML 1.1 takes for text, are numbers."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
