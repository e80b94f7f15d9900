"""What a training run is made of: the fields of a recipe, and how a YAML file and command-line overrides become one."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser


@dataclass
class DataArguments:
    """The text, and how it is cut into batches."""

    dataset: str | None = field(
        default=None, metadata={"help": "HF dataset: a name on the Hub or a local folder. Or use train_files."}
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration name of the HF dataset."})
    text_column: str = field(default="text", metadata={"help": "Column of the HF dataset that holds the text."})
    train_split: str = field(default="train", metadata={"help": "Training split; slices such as train[:90%] work."})
    validation_split: str = field(default="validation", metadata={"help": "Validation split of the HF dataset."})
    test_split: str | None = field(default=None, metadata={"help": "Test split, scored once at the end."})
    streaming: bool = field(default=False, metadata={"help": "Read the training split of the HF dataset as a stream."})
    train_files: list[str] | None = field(default=None, metadata={"help": "UTF-8 text files, one sentence a line."})
    validation_files: list[str] | None = field(default=None, metadata={"help": "Text files for validation."})
    test_files: list[str] | None = field(default=None, metadata={"help": "Text files scored once at the end."})
    gold_trees: str | None = field(
        default=None,
        metadata={
            "help": "Penn-style bracketed trees (.mrg file or folder): parsing F1 is reported, never selected on."
        },
    )
    tokenizer: str | None = field(
        default=None,
        metadata={"help": "Name or folder of a tokenizer. Otherwise one is built from the training text."},
    )
    vocab_size: int | None = field(
        default=None, metadata={"help": "Largest vocabulary of the tokenizer that is built."}
    )
    min_count: int = field(default=1, metadata={"help": "Least count of a word of the tokenizer that is built."})
    lowercase: bool = field(default=False, metadata={"help": "The tokenizer that is built lower-cases."})
    digits_to_n: bool = field(default=False, metadata={"help": "The tokenizer that is built writes numbers as N."})
    split: str = field(
        default="whitespace",
        metadata={"help": "Words of the tokenizer that is built: whitespace, treebank, characters."},
    )
    independent_sentences: bool = field(
        default=False,
        metadata={"help": "Train on padded sentences in random order instead of one stream with the state carried."},
    )
    bptt_length: int = field(default=70, metadata={"help": "Tokens of a row in one training step (stream only)."})
    random_bptt: bool = field(
        default=True, metadata={"help": "Draw the length around bptt_length as the papers do, lr scaled with it."}
    )
    max_sentence_length: int = field(
        default=200, metadata={"help": "Independent sentences are cut after this many tokens."}
    )


@dataclass
class ModelArguments:
    """The model: a new one from configuration fields, or an earlier checkpoint."""

    model_type: str = field(default="onlstm", metadata={"help": "Model type, as AutoConfig knows it."})
    model: str = field(
        default="{}", metadata={"help": "Fields of its configuration; override one with --model.hidden_size 650."}
    )
    init_from: str | None = field(
        default=None, metadata={"help": "Start from the weights of this checkpoint folder (finetuning stage)."}
    )

    def __post_init__(self):
        self.model: dict[str, Any] = json.loads(self.model) if isinstance(self.model, str) else self.model


@dataclass
class OptimizationArguments:
    """How the weights are updated."""

    optimizer: str = field(
        default="nt-asgd",
        metadata={"help": "nt-asgd: SGD, averaged once validation stops improving (Merity et al. 2018); or adamw."},
    )
    learning_rate: float = field(default=30.0, metadata={"help": "Peak learning rate."})
    weight_decay: float = field(default=1.2e-6, metadata={"help": "L2 penalty (nt-asgd) or decoupled decay (adamw)."})
    adam_beta1: float = field(default=0.9, metadata={"help": "AdamW's first-moment decay."})
    adam_beta2: float = field(default=0.999, metadata={"help": "AdamW's second-moment decay."})
    adam_epsilon: float = field(default=1e-8, metadata={"help": "AdamW's epsilon."})
    schedule: str = field(
        default="constant", metadata={"help": "constant, or cosine (to 0 at the end), after warm-up."}
    )
    warmup_steps: int = field(default=0, metadata={"help": "Steps of linear warm-up."})
    max_grad_norm: float = field(default=0.25, metadata={"help": "Gradients are clipped to this norm."})
    nonmonotone_interval: int = field(
        default=5, metadata={"help": "nt-asgd: average once validation is worse than the best of all but the last n."}
    )
    average_from_start: bool = field(
        default=False, metadata={"help": "nt-asgd: average from the first step on (finetuning stage)."}
    )
    stop_when_averaging_stalls: bool = field(
        default=False, metadata={"help": "Stop once the averaged weights stop improving by the non-monotone rule."}
    )
    batch_size: int = field(default=20, metadata={"help": "Rows of a batch in each process."})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Batches of one update."})
    num_epochs: int = field(default=1000, metadata={"help": "Passes over the training text."})
    max_steps: int | None = field(default=None, metadata={"help": "Stop after this many updates, whatever the epoch."})
    mixed_precision: str = field(default="no", metadata={"help": "no, bf16 or fp16."})
    seed: int = field(default=1111, metadata={"help": "Seed of initialisation, dropout and order."})


@dataclass
class RunArguments:
    """Where results go, and how often the run looks at itself."""

    output_dir: str = field(metadata={"help": "Folder of the run: best/, last/, logs and results.json."})
    resume: bool = field(default=False, metadata={"help": "Go on from output_dir/last where it exists."})
    eval_every_steps: int | None = field(default=None, metadata={"help": "Validate this often; default every epoch."})
    save_every_steps: int | None = field(
        default=None, metadata={"help": "Write output_dir/last this often in addition to every validation."}
    )
    eval_batch_size: int = field(default=10, metadata={"help": "Rows of the validation stream."})
    test_batch_size: int = field(default=1, metadata={"help": "Rows of the test stream."})
    log_every_steps: int = field(default=50, metadata={"help": "Updates between two log entries."})
    trackers: list[str] = field(
        default_factory=list, metadata={"help": "Trackers of Accelerate, for instance tensorboard."}
    )
    num_threads: int | None = field(default=None, metadata={"help": "CPU threads of each process."})


ARGUMENTS = (DataArguments, ModelArguments, OptimizationArguments, RunArguments)


@dataclass
class Recipe:
    """All arguments of a run, by group."""

    data: DataArguments
    model: ModelArguments
    optimization: OptimizationArguments
    run: RunArguments

    def __post_init__(self):
        choices = {
            "optimizer": (self.optimization.optimizer, ("nt-asgd", "adamw")),
            "schedule": (self.optimization.schedule, ("constant", "cosine")),
            "mixed_precision": (self.optimization.mixed_precision, ("no", "bf16", "fp16")),
        }
        for name, (value, allowed) in choices.items():
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        if (self.data.dataset is None) == (self.data.train_files is None):
            raise ValueError("give either dataset or train_files")
        if self.data.train_files is not None and self.data.validation_files is None:
            raise ValueError("train_files need validation_files beside them")
        for name in ("batch_size", "gradient_accumulation_steps", "num_epochs"):
            if getattr(self.optimization, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self.optimization, name)}")
        if self.data.bptt_length < 1:
            raise ValueError(f"bptt_length must be at least 1, not {self.data.bptt_length}")
        if self.data.streaming and self.optimization.max_steps is None and self.optimization.schedule == "cosine":
            raise ValueError("a cosine schedule over a streamed dataset needs max_steps: its length is not known")


def parse_recipe(arguments: list[str]) -> Recipe:
    """Reads a recipe from the command line: `recipe.yaml [--name value ...]`, later values overriding earlier ones.

    Raises:
        FileNotFoundError: if the recipe file does not exist.
        ValueError: for unknown keys, values of the wrong kind, or fields that contradict each other.
    """
    parser = HfArgumentParser(ARGUMENTS, prog="train_lm.py", usage="%(prog)s RECIPE.yaml [--name value ...]")
    fields: list[str] = []
    model_fields: dict[str, Any] = {}
    if arguments and not arguments[0].startswith("-"):
        fields, model_fields = _read_yaml(Path(arguments[0]))
        arguments = arguments[1:]
    overrides = iter(arguments)
    for argument in overrides:
        if argument.startswith("--model."):
            name, _, value = argument.removeprefix("--model.").partition("=")
            model_fields[name] = yaml.safe_load(value or next(overrides, ""))
        else:
            fields.append(argument)
    parsed = parser.parse_args_into_dataclasses([*fields, "--model", json.dumps(model_fields)])
    return Recipe(*parsed)


def _read_yaml(path: Path) -> tuple[list[str], dict[str, Any]]:
    """A recipe file as command-line arguments, and its `model` section."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {path}")
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of field names to values")
    model_fields = content.pop("model", {})
    known = {name for group in ARGUMENTS for name in group.__dataclass_fields__}
    unknown = sorted(set(content) - known)
    if unknown:
        raise ValueError(f"{path} has unknown fields: {', '.join(unknown)}; see train_lm.py --help")
    fields: list[str] = []
    for name, value in content.items():
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        fields += [f"--{name}", *(str(item) for item in values)]
    return fields, model_fields
