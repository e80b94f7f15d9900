"""Trains a model of logical inference: `accelerate launch training/train_logic.py RECIPE.yaml [--name value ...]`.

The protocol is that of Shen et al. (2019): train on pairs with few operators, test on pairs with up to twelve.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf import build_word_tokenizer, generate_logic_pairs
from onlstm_hf.logic.formulas import MAX_OPERATORS, OPERATORS, RELATIONS, VARIABLES, LogicPair, split_by_operators
from onlstm_hf.logic.pairs import SPLITS, read_logic_dataset, read_logic_files
from onlstm_hf.logic.scores import score_logic
from onlstm_hf.utils.dataset_errors import reported_dataset_errors
from onlstm_hf.utils.files import fingerprint
from onlstm_hf.utils.iteration import progress_bar
from training.classification.batches import Example, encode_examples
from training.classification.task import Classification, parse_classifier_recipe
from training.loop.recipe import fixed, recorded
from training.loop.run import run_script, train


@dataclass
class LogicDataArguments:
    """Source and number of the pairs."""

    _argument_group_name: ClassVar[str] = "data"

    pairs: str | None = recorded(
        "Folder with the files or splits train0 ... test12, or a Hub name of such a dataset. Default: generate.", None
    )
    num_pairs: int = fixed("Number of generated pairs.", 249_000, at_least=1)
    pairs_seed: int = fixed("Seed of the generated pairs.", 0, at_least=0)
    max_train_operators: int = fixed("Largest number of operators in a training pair.", 6, at_least=0)
    holdout_every: int = fixed("Every Nth training pair is held out to choose the best epoch.", 10, at_least=2)


parse_logic_recipe = partial(
    parse_classifier_recipe, LogicDataArguments, "train_logic.py", "Trains a model of logical inference."
)


def build_logic_tokenizer() -> PreTrainedTokenizerBase:
    """Builds a tokenizer of brackets, operators and variables, in this order; pipelines can classify pairs with it."""
    return build_word_tokenizer(vocabulary=["(", ")", *OPERATORS, *VARIABLES], token_type_ids=True)


def load_logic_splits(
    arguments: LogicDataArguments,
) -> tuple[list[LogicPair], list[LogicPair], dict[int, list[LogicPair]]]:
    """Reads or generates training and validation pairs, and test pairs by number of operators."""
    source = arguments.pairs
    if source is None:
        pairs = generate_logic_pairs(arguments.num_pairs, arguments.pairs_seed)
        splits = split_by_operators(progress_bar(pairs, total=arguments.num_pairs, unit="pair"))
    elif any(Path(source, name).is_file() for name in SPLITS):
        splits = read_logic_files(source)
    else:
        splits = read_logic_dataset(_load_dataset(source))
    training_pairs = chain.from_iterable(
        splits[f"train{number}"] for number in range(min(arguments.max_train_operators, MAX_OPERATORS) + 1)
    )
    train, validation = [], []
    for number, pair in enumerate(training_pairs, start=1):
        (train if number % arguments.holdout_every else validation).append(pair)
    if not train or not validation:
        raise ValueError(f"training and validation need pairs of at most {arguments.max_train_operators} operators")
    test = {number: splits[f"test{number}"] for number in range(MAX_OPERATORS + 1)}
    return train, validation, {number: pairs for number, pairs in test.items() if pairs}


def _load_dataset(source: str):
    import datasets

    with reported_dataset_errors(source, f"the pairs {source}"):
        if Path(source, "dataset_dict.json").is_file():
            return datasets.load_from_disk(source)
        return datasets.load_dataset(source)


def encode_pairs(pairs: Sequence[LogicPair], tokenizer: PreTrainedTokenizerBase) -> list[Example]:
    """Encodes pairs. The labels are indices of `RELATIONS`."""
    texts = (((pair.left, pair.right), RELATIONS.index(pair.relation)) for pair in pairs)
    return encode_examples(texts, tokenizer, "bracket, operator or variable")


class LogicalInference(Classification):
    """Predicts the relation of two formulas of propositional logic."""

    name, unit, script = "logical_inference", "pairs", "train_logic.py"
    labels, takes_pairs = RELATIONS, True
    build_tokenizer = staticmethod(build_logic_tokenizer)

    def load_examples(self) -> list[Example]:
        train, validation, self.test = load_logic_splits(self.recipe.data)
        parts = {"training": train, "validation": validation, "test": chain.from_iterable(self.test.values())}
        self.fingerprints = {f"{name} pairs": fingerprint(map(" ".join, pairs)) for name, pairs in parts.items()}
        self.num_training_pairs = len(train)
        self.validation = encode_pairs(validation, self.tokenizer)
        return encode_pairs(train, self.tokenizer)

    def test_results(self, model: PreTrainedModel) -> dict[str, Any]:
        predictions, references, num_operators = [], [], []
        for number, pairs in self.test.items():
            predictions += self.predict_labels(model, encode_pairs(pairs, self.tokenizer))
            references += [pair.relation for pair in pairs]
            num_operators += [number] * len(pairs)
        scores = score_logic(predictions, references, num_operators)
        return {"test": scores, "training_pairs": self.num_training_pairs}


main = partial(train, LogicalInference, parse_logic_recipe)

if __name__ == "__main__":
    run_script("train_logic.py", main)
