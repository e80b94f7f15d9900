"""Expressions to train, validate and test on."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from onlstm_hf import build_word_tokenizer
from onlstm_hf.logic.listops import (
    BRACKETS,
    END,
    OPERATIONS,
    VALUES,
    ListOpsExpression,
    generate_listops,
    read_listops_file,
)
from onlstm_hf.utils.iteration import progress_bar
from training.classification.batches import Example, encode_examples
from training.listops.recipe import ListOpsDataArguments


class ListOpsSplits(NamedTuple):
    """Expressions by what they are for."""

    train: list[ListOpsExpression]
    validation: list[ListOpsExpression]
    test: list[ListOpsExpression]


def build_listops_tokenizer() -> PreTrainedTokenizerBase:
    """Round brackets, operations, the end of a list, and digits, in this order."""
    return build_word_tokenizer(vocabulary=[*BRACKETS, *OPERATIONS, END, *VALUES])


def load_listops_splits(arguments: ListOpsDataArguments) -> ListOpsSplits:
    """The expressions of a recipe, read or generated; none is in two splits.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if they cannot be read, or leave nothing to train on.
    """
    if arguments.expressions is None:
        total = arguments.num_train + arguments.num_validation + arguments.num_test
        drawn = generate_listops(total, arguments.expressions_seed)
        generated = list(progress_bar(drawn, total=total, unit="expression"))
        test, train = generated[: arguments.num_test], generated[arguments.num_test :]
    else:
        train, test = (
            list(dict.fromkeys(read_listops_file(Path(arguments.expressions, f"{name}_d20s.tsv"))))
            for name in ("train", "test")
        )
        tested = {expression.tokens for expression in test}
        train = [expression for expression in train if expression.tokens not in tested]
    longest = arguments.max_train_length
    validation, train = (
        [expression for expression in part if longest is None or len(expression.tokens) <= longest]
        for part in (train[: arguments.num_validation], train[arguments.num_validation :])
    )
    if not (train and validation and test):
        raise ValueError(
            f"there are {len(train)} expressions to train on, {len(validation)} to validate and {len(test)} to test "
            "on: all are needed"
        )
    return ListOpsSplits(train, validation, test)


def encode_expressions(
    expressions: Sequence[ListOpsExpression], tokenizer: PreTrainedTokenizerBase, round_brackets: bool
) -> list[Example]:
    """The token ids of expressions, with their trees in round brackets or without, and their values as labels."""
    texts = (
        ((expression.brackets if round_brackets else " ".join(expression.tokens),), expression.value)
        for expression in expressions
    )
    return encode_examples(texts, tokenizer, "bracket, operation or digit")
