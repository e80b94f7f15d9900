"""The fields of a run that trains a language model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from training.loop.recipe import NewModelArguments, Recipe, RunArguments, UpdateArguments, fixed, recorded
from training.loop.recipe_parser import parse_groups

# Fields that name files. Fingerprints of their contents say whether two runs have the same data.
DATA_FILES = ("train_files", "validation_files", "test_files", "gold_trees", "target_trees")


@dataclass
class TextArguments:
    """The training text, gold trees to report on, and how both are read."""

    _argument_group_name: ClassVar[str] = "data"

    dataset: str | None = recorded("HF dataset: a name on the Hub or a local folder. Or use train_files.", None)
    dataset_config: str | None = recorded("Configuration name of the HF dataset.", None)
    text_column: str = recorded("Column of the HF dataset that holds the text.", "text")
    train_split: str = recorded("Training split of the HF dataset; slices such as train[:1000] work.", "train")
    validation_split: str = recorded("Validation split of the HF dataset.", "validation")
    train_files: list[str] | None = recorded("UTF-8 text files, one sentence a line.", None)
    gold_trees: str | None = recorded(
        "Penn-style bracketed trees (.mrg file or folder): parsing F1 is reported, never selected on.", None
    )
    gold_tree_column: str | None = recorded(
        "The same from a column of the validation split: one bracketed tree a sentence.", None
    )
    treebank_preset: Literal["ptb", "ctb", "universal", "plain"] | None = recorded(
        "How gold trees are read: what is a word, and its case and digits (`PRESETS` in onlstm_hf/trees/treebank.py). "
        "The checkpoint remembers it. Otherwise as that of init_from remembers, or ptb.",
        None,
    )
    dropped_tags: list[str] | None = recorded("Tags of the gold trees' leaves that are no words, if others.", None)
    treebank_lowercase: bool | None = recorded("Whether the gold trees' words are lower-cased, if otherwise.", None)
    treebank_digits: Literal["runs", "numbers", "keep"] | None = recorded(
        "Write N for runs of digits or for numbers in the gold trees, or keep them, if otherwise.", None
    )
    function_tag_separators: str | None = recorded(
        "What follows one of these characters in a label of the gold trees is left out, if others.", None
    )
    tokenizer: str | None = fixed(
        "Name or folder of a tokenizer. Otherwise that of init_from, or one built from the text.", None
    )
    vocab_size: int | None = fixed("Largest vocabulary of the tokenizer that is built.", None, at_least=1)
    min_count: int = fixed("Least count of a word of the tokenizer that is built.", 1, at_least=1)
    lowercase: bool = fixed("The tokenizer that is built lower-cases.", False)
    digits_to_n: bool = fixed("The tokenizer that is built writes numbers as N.", False)
    drop_punctuation: bool = fixed("The tokenizer that is built leaves out words without a letter or digit.", False)
    split: Literal["whitespace", "treebank", "characters"] = fixed(
        "What the words of the tokenizer that is built are.", "whitespace"
    )


def check_text_arguments(data: TextArguments) -> None:
    """Raises a `ValueError` where fields that name text or gold trees contradict each other."""
    if (data.dataset is None) == (data.train_files is None):
        raise ValueError("give either dataset or train_files")
    if data.gold_tree_column is not None and (data.dataset is None or data.gold_trees is not None):
        raise ValueError("gold_tree_column needs a dataset, and takes the place of gold_trees")


@dataclass
class DataArguments(TextArguments):
    """The text, and how it is cut into batches."""

    test_split: str | None = recorded("Test split, scored once at the end.", None)
    validation_files: list[str] | None = recorded("Text files for validation.", None)
    test_files: list[str] | None = recorded("Text files scored once at the end.", None)
    target_trees: str | None = recorded(
        "Trees of training/average_trees.py that the model's are drawn to (distillation). Those of one sentence of "
        "fifty are held out, to score the model's trees against.",
        None,
    )
    subwords: Literal["bpe", "characters"] | None = fixed(
        "What the tokens of the tokenizer that is built are, if not words: parts of them by byte-pair encoding, "
        "or their characters.",
        None,
    )
    streaming: bool = fixed("Read the training text as it comes instead of holding it in memory.", False)
    independent_sentences: bool = fixed(
        "Train on padded sentences in random order instead of one stream with the state carried; perplexities are "
        "then those of sentences on their own, too.",
        False,
    )
    bptt_length: int = fixed("Tokens of a row in one training step (stream only).", 70, at_least=1)
    random_bptt: bool = fixed("Draw the length around bptt_length as the papers do, lr scaled with it.", True)
    max_sentence_length: int = fixed(
        "Independent sentences are cut after this many tokens in training.", 200, at_least=1
    )


@dataclass
class ModelArguments(NewModelArguments):
    """The model: a new one from configuration fields, or an earlier checkpoint."""

    init_from: str | None = fixed("Start from the weights of this checkpoint folder (finetuning stage).", None)


@dataclass
class OptimizationArguments(UpdateArguments):
    """Optimiser, learning rate and batches."""

    optimizer: Literal["nt-asgd", "sgd", "adam", "adamw"] = fixed(
        "nt-asgd: SGD, averaged once validation stops improving (Merity et al. 2018).", "nt-asgd"
    )
    schedule: Literal["constant", "cosine", "warmup_stable_decay", "plateau"] = recorded(
        "Learning rate after warm-up; cosine falls to 0 at the end, warmup_stable_decay is constant until the last "
        "decay_steps and falls to 0 in a line, plateau lowers it where validation does not improve.",
        "constant",
    )
    decay_steps: int = recorded("warmup_stable_decay: updates of the decay, the last ones of the run.", 0, at_least=0)
    plateau_patience: int = recorded(
        "plateau: checks without improvement before the one that lowers the rate.", 2, at_least=0
    )
    plateau_factor: float = recorded("plateau: what the rate is multiplied by then.", 0.5, above=0, below=1)
    warmup_steps: int = recorded("Steps of linear warm-up.", 0, at_least=0)
    nonmonotone_interval: int = recorded(
        "nt-asgd: average once validation is worse than the best of all but the last n.", 5, at_least=1
    )
    average_from_start: bool = fixed(
        "The weights that count are averaged from the first step on, whatever the optimizer.", False
    )
    average_decay: float | None = recorded(
        "The average forgets: with each update it becomes this much of itself and the rest of the new weights. "
        "Default: the mean of all since it began.",
        None,
        at_least=0,
        below=1,
    )
    stop_when_averaging_stalls: bool = recorded(
        "nt-asgd: stop once the averaged weights stop improving by the same rule.", False
    )
    tree_loss_weight: float = recorded(
        "target_trees: factor of their splitting loss, beside that of predicting words.", 1.0, at_least=0
    )
    tree_temperature: float = recorded(
        "target_trees: a difference of distances that makes a split e times as likely. Distances of an ON-LSTM "
        "and a PRPN lie between 0 and 1.",
        0.02,
        above=0,
    )
    tree_batch_size: int = fixed("target_trees: sentences of each batch in each process.", 64, at_least=1)


@dataclass
class LanguageModelRunArguments(RunArguments):
    """As for every run, and how the test text is read."""

    test_batch_size: int = recorded("Rows of the test text.", 1, at_least=1)


ARGUMENTS = (DataArguments, ModelArguments, OptimizationArguments, LanguageModelRunArguments)


@dataclass
class LanguageModelRecipe(Recipe):
    """All arguments of a run, by group.

    Raises:
        ValueError: if a value is out of its range, or fields contradict each other.
    """

    data: DataArguments
    model: ModelArguments
    optimization: OptimizationArguments
    run: LanguageModelRunArguments

    def __post_init__(self):
        super().__post_init__()
        self._check_data()
        self._check_optimization()

    def _check_data(self) -> None:
        data = self.data
        check_text_arguments(data)
        if data.train_files is not None and data.validation_files is None:
            raise ValueError("train_files need validation_files beside them")
        for name in ("validation_files", "test_files"):
            if data.dataset is not None and getattr(data, name) is not None:
                raise ValueError(f"{name} go with train_files; with a dataset give {name.replace('files', 'split')}")
        if data.streaming and data.independent_sentences:
            raise ValueError("independent_sentences are sorted by length, which needs the whole text: not streaming")

    def _check_optimization(self) -> None:
        arguments = self.optimization
        if (arguments.schedule == "warmup_stable_decay") != (arguments.decay_steps > 0):
            raise ValueError("the schedule warmup_stable_decay and decay_steps above 0 need each other")
        falls_to_zero = arguments.schedule in ("cosine", "warmup_stable_decay")
        if self.data.streaming and arguments.max_steps is None and falls_to_zero:
            raise ValueError(
                f"the schedule {arguments.schedule} over streamed text needs max_steps: its length is not known"
            )
        if arguments.optimizer != "nt-asgd" and arguments.stop_when_averaging_stalls:
            raise ValueError(f"stop_when_averaging_stalls is for the optimizer nt-asgd, not {arguments.optimizer}")
        if arguments.average_decay is not None and not arguments.averages:
            raise ValueError("average_decay needs average_from_start or the optimizer nt-asgd")


def parse_recipe(arguments: list[str]) -> LanguageModelRecipe:
    """Reads a recipe as `parse_groups` does, with the same errors and those of `LanguageModelRecipe`."""
    return LanguageModelRecipe(*parse_groups(arguments, ARGUMENTS, "train_lm.py", "Trains a language model."))
