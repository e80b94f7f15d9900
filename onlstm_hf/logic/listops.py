"""ListOps: nested operations on lists of digits (Nangia & Bowman 2018).

`[MAX 2 9 [MIN 4 7 ] 0 ]` has the value 9. The operations are maximum, minimum, median rounded down, and sum modulo 10.
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
BRACKETS = ("(", ")")
VALUES = tuple(map(str, range(10)))

# Parameters of the authors' data.
_OPERATION_PROBABILITY = 0.25
_MAX_ARGUMENTS = 5
_MAX_DEPTH = 20
# Generation stops with an error after this many draws without a new expression.
_PATIENCE = 100_000


class ListOpsExpression(NamedTuple):
    """A ListOps expression with its value and structure.

    Attributes:
        tokens: operations with their opening square bracket, digits, and closing square brackets.
        value, depth: the value, from 0 to 9, and the nesting depth of the lists, 0 for a digit.
        lists: spans `(start, end)` of all lists, `tokens[start:end]`, sorted by end.
        parts: spans from the start of a list to the end of each argument. They make the tree binary, left-branching
            within each list.
    """

    tokens: tuple[str, ...]
    value: int
    depth: int
    lists: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int], ...]

    @property
    def brackets(self) -> str:
        """The binary tree in the round brackets of the authors' files: `( ( ( [MAX 2 ) 9 ) ] )` for `[MAX 2 9 ]`."""
        opening, closing = [""] * len(self.tokens), [""] * len(self.tokens)
        for start, end in (*self.lists, *self.parts):
            opening[start] += "( "
            closing[end - 1] += " )"
        return " ".join(map("".join, zip(opening, self.tokens, closing, strict=True)))

    def gold_tree(self, binary: bool = True) -> GoldTree:
        """Returns a gold tree with a constituent for each list, and with `binary` also for their parts."""
        labelled = [("LIST", *span) for span in self.lists]
        if binary:
            labelled += [("PART", *span) for span in self.parts]
        return GoldTree(self.tokens, tuple(sorted(labelled, key=lambda item: (item[1], -item[2]))))


def read_expression(text: str) -> ListOpsExpression:
    """Parses an expression, with white space between all tokens, and computes its value. Ignores round brackets.

    Raises:
        ValueError: if the text is no expression; it names the token.
    """
    tokens = tuple(token for token in text.split() if token not in BRACKETS)
    lists, parts, values = [], [], []
    open_lists: list[tuple[int, list[int]]] = []  # start and values of each open list
    deepest = 0
    for position, token in enumerate(tokens):
        if values:
            raise ValueError(f"token {position + 1}, {token!r}, comes after the end of the expression")
        if token in OPERATIONS:
            open_lists.append((position, []))
            deepest = max(deepest, len(open_lists))
            continue
        if token == END and open_lists and open_lists[-1][1]:
            start, arguments = open_lists.pop()
            value = OPERATIONS[tokens[start]](arguments)
            lists.append((start, position + 1))
        elif token in VALUES:
            value = int(token)
        else:
            expected = f"a digit, one of {' '.join(OPERATIONS)}, or a {END} that closes a list with a value"
            raise ValueError(f"token {position + 1}, {token!r}, must be {expected}")
        if open_lists:
            start, arguments = open_lists[-1]
            arguments.append(value)
            parts.append((start, position + 1))
        else:
            values.append(value)
    if not values:
        raise ValueError(f"it has {len(open_lists)} unclosed lists" if tokens else "it is empty")
    return ListOpsExpression(tokens, values[0], deepest, tuple(lists), tuple(parts))


def generate_listops(number: int, seed: int = 0, max_length: int | None = None) -> Iterator[ListOpsExpression]:
    """Draws distinct expressions like the authors' data.

    With probability 1/4 an argument is a list of 2 to 5 arguments, nested to a depth of at most 19, else a digit.

    Args:
        seed: equal seeds give equal expressions.
        max_length: rejects expressions with more tokens. The authors have no limit; 1 % have over 380 tokens.

    Raises:
        ValueError: if there seem to be fewer expressions.
    """
    generator = Random(seed)
    seen: set[str] = set()
    draws = 0
    while len(seen) < number:
        draws += 1
        if draws > _PATIENCE:
            raise ValueError(f"there seem to be only {len(seen)} such expressions, not {number}")
        text = _draw(generator, depth=1)
        if text not in seen and (max_length is None or len(text.split()) <= max_length):
            draws = 0
            seen.add(text)
            yield read_expression(text)


def _draw(generator: Random, depth: int) -> str:
    if depth >= _MAX_DEPTH or generator.random() > _OPERATION_PROBABILITY:
        return generator.choice(VALUES)
    arguments = [_draw(generator, depth + 1) for _ in range(generator.randint(2, _MAX_ARGUMENTS))]
    return " ".join([generator.choice(list(OPERATIONS)), *arguments, END])


def read_listops_file(path: str | os.PathLike) -> list[ListOpsExpression]:
    """Reads a file of the authors, with lines `value TAB expression`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line is malformed or has a wrong value; it names the line.
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
    """Builds a Hugging Face dataset of expressions by split name.

    Its columns are `text` (without round brackets), `brackets` (the binary tree), `label` (a `ClassLabel` of the
    values), `depth` and `num_tokens`.
    """
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    text, number = Value("string"), Value("int32")
    label = ClassLabel(names=list(VALUES))
    features = Features({"text": text, "brackets": text, "label": label, "depth": number, "num_tokens": number})

    def row(expression: ListOpsExpression) -> dict[str, str | int]:
        return {
            "text": " ".join(expression.tokens),
            "brackets": expression.brackets,
            "label": expression.value,
            "depth": expression.depth,
            "num_tokens": len(expression.tokens),
        }

    return DatasetDict(
        {name: Dataset.from_list(list(map(row, expressions)), features) for name, expressions in splits.items()}
    )
