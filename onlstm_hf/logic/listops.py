"""ListOps: nested operations on lists of digits, for which one must find the lists (Nangia & Bowman 2018).

`[MAX 2 9 [MIN 4 7 ] 0 ]` has the value 9. The operations are the largest and the smallest value, the median rounded
down, and the sum modulo 10.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ..trees.treebank import GoldTree
from ..utils.files import read_text_file

if TYPE_CHECKING:
    from datasets import DatasetDict

OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
VALUES = tuple(map(str, range(10)))
BRACKETS = ("(", ")")

# Settings with which the authors' data were drawn.
_OPERATION_PROBABILITY = 0.25
_MAX_ARGUMENTS = 5
_MAX_DEPTH = 20
# After this many draws in a row without a new expression, none is left, most likely.
_PATIENCE = 100_000


class ListOpsExpression(NamedTuple):
    """An expression with what its structure gives.

    Attributes:
        tokens: operations with the square bracket that opens their list, digits, and closing square brackets.
        value: what it comes to, from 0 to 9.
        depth: how deeply lists are nested; 0 for a digit.
        lists: `(start, end)` of every list, `tokens[start:end]`, in the order in which they end.
        parts: the same of every part of a list from its beginning up to one of its arguments: with these the tree is
            binary, left branching within each list.
    """

    tokens: tuple[str, ...]
    value: int
    depth: int
    lists: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int], ...]

    @property
    def brackets(self) -> str:
        """The binary tree in round brackets, as in the authors' files: `( ( ( [MAX 2 ) 9 ) ] )` for `[MAX 2 9 ]`."""
        opening, closing = [""] * len(self.tokens), [""] * len(self.tokens)
        for start, end in (*self.lists, *self.parts):
            opening[start] += "( "
            closing[end - 1] += " )"
        return " ".join(map("".join, zip(opening, self.tokens, closing, strict=True)))

    def gold_tree(self, binary: bool = True) -> GoldTree:
        """Returns a gold tree with a constituent for each list; with `binary` also for their parts."""
        labelled = [("LIST", *span) for span in self.lists]
        if binary:
            labelled += [("PART", *span) for span in self.parts]
        return GoldTree(self.tokens, tuple(sorted(labelled, key=lambda found: (found[1], -found[2]))))


def read_expression(text: str) -> ListOpsExpression:
    """Reads an expression, and computes its value.

    Args:
        text: tokens separated by white space. Round brackets are left out, wherever they stand.

    Raises:
        ValueError: if it is no expression; the message says at which token.

    Example:

    ```python
    >>> from onlstm_hf.logic.listops import read_expression
    >>> read_expression("[MAX 2 9 [MIN 4 7 ] 0 ]").value
    9

    ```
    """
    tokens = tuple(token for token in text.split() if token not in BRACKETS)
    lists, parts, values = [], [], []
    open_lists: list[tuple[int, list[int]]] = []  # where each list that is still open begins, and its values so far
    deepest = 0
    for place, token in enumerate(tokens):
        if values:
            raise ValueError(f"token {place + 1}, {token!r}, comes after the end of the expression")
        if token in OPERATIONS:
            open_lists.append((place, []))
            deepest = max(deepest, len(open_lists))
            continue
        if token == END and open_lists and open_lists[-1][1]:
            start, arguments = open_lists.pop()
            value = OPERATIONS[tokens[start]](arguments)
            lists.append((start, place + 1))
        elif token in VALUES:
            value = int(token)
        else:
            raise ValueError(
                f"token {place + 1}, {token!r}, is no digit, none of {' '.join(OPERATIONS)}, and no {END} that ends a "
                "list with a value"
            )
        if open_lists:
            start, arguments = open_lists[-1]
            arguments.append(value)
            parts.append((start, place + 1))
        else:
            values.append(value)
    if not values:
        raise ValueError(f"it ends before {len(open_lists)} of its lists do" if tokens else "it is empty")
    return ListOpsExpression(tokens, values[0], deepest, tuple(lists), tuple(parts))


def generate_listops(number: int, seed: int = 0, max_length: int | None = None) -> Iterator[ListOpsExpression]:
    """Draws expressions as the authors did, each once.

    An argument is a list with probability 1/4, of 2 to 5 arguments and nested to a depth of 19 at most, else a digit.

    Args:
        number: of expressions.
        seed: the same expressions come for the same seed.
        max_length: leave out those of more tokens. The authors did not; one in a hundred has over 380.

    Raises:
        ValueError: if fewer expressions exist.
    """
    generator = Random(seed)
    seen: set[str] = set()
    draws_in_vain = 0
    while len(seen) < number:
        text = _draw(generator, depth=1)
        if text in seen or (max_length is not None and len(text.split()) > max_length):
            draws_in_vain += 1
            if draws_in_vain == _PATIENCE:
                raise ValueError(f"there are hardly more than {len(seen)} expressions of these, and not {number}")
            continue
        draws_in_vain = 0
        seen.add(text)
        yield read_expression(text)


def _draw(generator: Random, depth: int) -> str:
    if depth >= _MAX_DEPTH or generator.random() > _OPERATION_PROBABILITY:
        return generator.choice(VALUES)
    arguments = [_draw(generator, depth + 1) for _ in range(generator.randint(2, _MAX_ARGUMENTS))]
    return " ".join([generator.choice(list(OPERATIONS)), *arguments, END])


def read_listops_file(path: str | os.PathLike) -> list[ListOpsExpression]:
    """Reads a file of the authors, with a line `value TAB expression` for each example.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line is malformed, or its value another than that of its expression; the message says which.
    """
    expressions = []
    for number, line in enumerate(read_text_file(Path(path)), start=1):
        value, _, text = line.partition("\t")
        try:
            expression = read_expression(text)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if value.strip() != str(expression.value):
            raise ValueError(f"{path}, line {number}: the expression has the value {expression.value}, not {value!r}")
        expressions.append(expression)
    return expressions


def build_listops_dataset(splits: Mapping[str, Sequence[ListOpsExpression]]) -> "DatasetDict":
    """Makes a Hugging Face dataset of expressions, to save with `save_to_disk` or share with `push_to_hub`.

    Args:
        splits: expressions by the name of their split.

    Returns:
        For each split a dataset with the columns `text` (without round brackets), `brackets` (with those of the binary
        tree), `label` (a `ClassLabel` of the values), `depth` and `num_tokens`.

    Example:

    ```python
    >>> from onlstm_hf.logic.listops import build_listops_dataset, generate_listops
    >>> dataset = build_listops_dataset({"train": list(generate_listops(100, seed=1))})
    >>> dataset["train"].column_names
    ['text', 'brackets', 'label', 'depth', 'num_tokens']

    ```
    """
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    text, number = Value("string"), Value("int32")
    label = ClassLabel(names=list(VALUES))
    features = Features({"text": text, "brackets": text, "label": label, "depth": number, "num_tokens": number})
    columns = {
        "text": lambda expression: " ".join(expression.tokens),
        "brackets": lambda expression: expression.brackets,
        "label": lambda expression: expression.value,
        "depth": lambda expression: expression.depth,
        "num_tokens": lambda expression: len(expression.tokens),
    }
    return DatasetDict(
        {
            name: Dataset.from_dict(
                {column: list(map(of, expressions)) for column, of in columns.items()}, features=features
            )
            for name, expressions in splits.items()
        }
    )
