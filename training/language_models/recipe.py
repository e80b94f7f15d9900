"""Recipe fields of language models."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from training.loop.recipe import (
    NewModelArguments,
    Recipe,
    RunArguments,
    UpdateArguments,
    fixed,
    parse_groups,
    recorded,
)

# Fields with paths of files. Runs are compared by fingerprints of the contents instead.
DATA_FILES = ("train_files", "validation_files", "test_files", "gold_trees", "target_trees")


@dataclass
class TextArguments:
    """Training text, gold trees, tokenizer and preprocessing."""

    _argument_group_name: ClassVar[str] = "data"

    dataset: str | None = recorded("HF dataset, a Hub name or a local folder; or use train_files.", None)
    dataset_config: str | None = recorded("Configuration name of the HF dataset.", None)
    text_column: str = recorded("Column of the HF dataset that holds the text.", "text")
    train_split: str = recorded("Training split of the HF dataset; slices such as train[:1000] work.", "train")
    validation_split: str = recorded("Validation split of the HF dataset.", "validation")
    train_files: list[str] | None = recorded("UTF-8 text files, one sentence per line.", None)
    gold_trees: str | None = recorded("Bracketed trees (file or folder) to report F1; they select no model.", None)
    gold_tree_column: str | None = recorded("Column of the validation split with gold trees, instead of a file.", None)
    treebank_preset: Literal["ptb", "ctb", "universal", "plain"] | None = recorded(
        "Preprocessing of the gold trees (`PRESETS` in onlstm_hf/trees/treebank.py), saved with the checkpoint. "
        "Default: that of init_from, or ptb.",
        None,
    )
    dropped_tags: list[str] | None = recorded("Overrides the preset: tags of leaves that are not words.", None)
    treebank_lowercase: bool | None = recorded("Overrides the preset: lower-case the words of gold trees.", None)
    treebank_digits: Literal["runs", "numbers", "keep"] | None = recorded(
        "Overrides the preset: write runs of digits or numbers in gold trees as N, or keep them.", None
    )
    function_tag_separators: str | None = recorded("Overrides the preset: characters that begin function tags.", None)
    tokenizer: str | None = fixed("Name or folder. Default: that of init_from, or one built from the text.", None)
    vocab_size: int | None = fixed("Built tokenizer: largest vocabulary.", None, at_least=1)
    min_count: int = fixed("Built tokenizer: least count of a word.", 1, at_least=1)
    lowercase: bool = fixed("Built tokenizer: lower-case the text.", False)
    digits_to_n: bool = fixed("Built tokenizer: write numbers as N.", False)
    drop_punctuation: bool = fixed("Built tokenizer: drop words without a letter or digit.", False)
    split: Literal["whitespace", "treebank", "characters"] = fixed(
        "Built tokenizer: how text is split into words.", "whitespace"
    )


def check_text_arguments(data: TextArguments) -> None:
    if (data.dataset is None) == (data.train_files is None):
        raise ValueError("give either dataset or train_files")
    if data.gold_tree_column is not None and (data.dataset is None or data.gold_trees is not None):
        raise ValueError("gold_tree_column needs a dataset, and takes the place of gold_trees")


@dataclass
class DataArguments(TextArguments):
    """Text, target trees, and how text is cut into batches."""

    test_split: str | None = recorded("Test split, scored once at the end.", None)
    validation_files: list[str] | None = recorded("Text files for validation.", None)
    test_files: list[str] | None = recorded("Text files scored once at the end.", None)
    target_trees: str | None = recorded("Averaged trees (training/average_trees.py) to distil into the model.", None)
    subwords: Literal["bpe", "characters"] | None = fixed(
        "Built tokenizer: split words into tokens by byte-pair encoding, or into characters.", None
    )
    streaming: bool = fixed("Stream the training text instead of encoding all of it first.", False)
    independent_sentences: bool = fixed("Train and score padded sentences from empty states, not one stream.", False)
    bptt_length: int = fixed("Tokens per row in a training step (stream only).", 70, at_least=1)
    random_bptt: bool = fixed("Draw lengths around bptt_length as the papers do; they scale the rate.", True)
    max_sentence_length: int = fixed("Independent sentences: tokens kept per training sentence.", 200, at_least=1)


@dataclass
class ModelArguments(NewModelArguments):
    """New model from configuration fields, or an earlier checkpoint."""

    init_from: str | None = fixed("Start from the weights of this checkpoint folder (finetuning stage).", None)


@dataclass
class OptimizationArguments(UpdateArguments):
    """Optimiser, learning rate and batches."""

    optimizer: Literal["nt-asgd", "sgd", "adam", "adamw"] = fixed(
        "nt-asgd: SGD that starts averaging when validation stops improving (Merity et al. 2018).", "nt-asgd"
    )
    schedule: Literal["constant", "cosine", "warmup_stable_decay", "plateau"] = recorded(
        "Learning rate after warm-up. cosine: falls to 0 at the end; warmup_stable_decay: constant, then linear to 0 "
        "over the last decay_steps; plateau: lowered when validation does not improve.",
        "constant",
    )
    decay_steps: int = recorded("warmup_stable_decay: updates of the decay at the end of the run.", 0, at_least=0)
    plateau_patience: int = recorded(
        "plateau: lower the rate after more than this many validations without improvement.", 2, at_least=0
    )
    plateau_factor: float = recorded("plateau: factor of the rate at each plateau.", 0.5, above=0, below=1)
    warmup_steps: int = recorded("Updates of linear warm-up.", 0, at_least=0)
    nonmonotone_interval: int = recorded(
        "nt-asgd: average once validation is worse than the best more than n validations ago.", 5, at_least=1
    )
    average_from_start: bool = fixed("Evaluate weights averaged from the first update, with any optimizer.", False)
    average_decay: float | None = recorded(
        "Decay of an exponential moving average of weights. Default: their mean.", None, at_least=0, below=1
    )
    stop_when_averaging_stalls: bool = recorded("nt-asgd: stop when averaged weights stop improving.", False)
    tree_loss_weight: float = recorded("target_trees: weight of the splitting loss in the sum.", 1.0, at_least=0)
    tree_temperature: float = recorded(
        "target_trees: difference of distances (0 to 1) that makes a split e times as likely.", 0.02, above=0
    )
    tree_batch_size: int = fixed("target_trees: sentences per batch in each process.", 64, at_least=1)


@dataclass
class LanguageModelRunArguments(RunArguments):
    """Fields of every run, and the batch size of the test text."""

    test_batch_size: int = recorded("Rows of a batch of the test text.", 1, at_least=1)


ARGUMENTS = (DataArguments, ModelArguments, OptimizationArguments, LanguageModelRunArguments)


class LanguageModelRecipe(Recipe):
    """The groups `ARGUMENTS`. A `ValueError` names a contradiction."""

    def __post_init__(self):
        super().__post_init__()
        data, arguments = self.data, self.optimization
        check_text_arguments(data)
        if data.train_files is not None and data.validation_files is None:
            raise ValueError("train_files need validation_files")
        for name in ("validation_files", "test_files"):
            if data.dataset is not None and getattr(data, name) is not None:
                raise ValueError(f"{name} go with train_files; with a dataset give {name.replace('files', 'split')}")
        if data.streaming and data.independent_sentences:
            raise ValueError("independent_sentences are sorted by length: this needs the whole text, not streaming")
        if (arguments.schedule == "warmup_stable_decay") != (arguments.decay_steps > 0):
            raise ValueError("the schedule warmup_stable_decay needs decay_steps above 0, and other schedules need 0")
        falls_to_zero = arguments.schedule in ("cosine", "warmup_stable_decay")
        if data.streaming and arguments.max_steps is None and falls_to_zero:
            raise ValueError(
                f"the schedule {arguments.schedule} needs max_steps for streamed text, whose length is unknown"
            )
        if arguments.optimizer != "nt-asgd" and arguments.stop_when_averaging_stalls:
            raise ValueError(f"stop_when_averaging_stalls is for the optimizer nt-asgd, not {arguments.optimizer}")
        if arguments.average_decay is not None and not arguments.averages:
            raise ValueError("average_decay needs average_from_start or the optimizer nt-asgd")


def parse_recipe(arguments: list[str]) -> LanguageModelRecipe:
    return LanguageModelRecipe(*parse_groups(arguments, ARGUMENTS, "train_lm.py", "Trains a language model."))
