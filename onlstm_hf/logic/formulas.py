"""Pairs of propositional formulas and their logical relation (Bowman, Manning & Potts 2015, section 4).

A formula is a variable `a` ... `f`, `( not X )`, `( X ( and Y ) )` or `( X ( or Y ) )`. A world is one of the 64
assignments of true and false to the six variables. The relation of two formulas is that of the sets of worlds in which
they are true.
"""

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

VARIABLES = ("a", "b", "c", "d", "e", "f")
OPERATORS = ("not", "and", "or")
# The seven basic relations of MacCartney & Manning (2009): entailment, reverse entailment, equivalence, contradiction
# (exhaustive exclusion), alternation (exclusion), independence, cover (exhaustion).
RELATIONS = ("<", ">", "=", "^", "|", "#", "v")
# The last split has all pairs with this many operators or more.
MAX_OPERATORS = 12

# A set of worlds is a bit set. Variable `i` is true in the worlds whose index has bit `i`.
_ALL_WORLDS = (1 << (1 << len(VARIABLES))) - 1
_WORLDS = {
    variable: sum(1 << world for world in range(1 << len(VARIABLES)) if world >> index & 1)
    for index, variable in enumerate(VARIABLES)
}
# Keys: whether worlds exist in which both formulas are true, only the left one, only the right one, neither.
_RELATIONS = {
    (True, False, True, True): "<",
    (True, True, False, True): ">",
    (True, False, False, True): "=",
    (False, True, True, False): "^",
    (False, True, True, True): "|",
    (True, True, True, False): "v",
}
_TOKEN = re.compile(r"[()]|[^\s()]+")

# Parameters of the data of Bowman et al. (see `generate_logic_pairs`).
_VARIABLES_OF_A_PAIR = 4
_SIZE_BUDGET = 12
_BINARY_PROBABILITY = 4 / 9
_NEGATION_PROBABILITY = 1 / 3
_TRAIN_SHARE = 0.85
# Generation stops with an error after this many draws without a new pair.
_PATIENCE = 100_000


class LogicPair(NamedTuple):
    """Two formulas and their relation, one of `RELATIONS`."""

    relation: str
    left: str
    right: str

    @property
    def num_operators(self) -> int:
        """Number of operators in the formula with more operators."""
        return max(sum(map(formula.count, OPERATORS)) for formula in (self.left, self.right))


def logical_relation(left: str, right: str) -> str:
    """Returns the relation of two formulas, from their truth tables over all 64 worlds.

    Returns:
        `<` if left entails right, `>` if right entails left, `=` if they are equivalent, `^` if exactly one of them is
        true in each world, `|` if no world makes both true, `v` if each world makes at least one true, else `#`.
        Tautologies and contradictions are always `#`: the relations are not defined for them, and the data have none.

    Raises:
        ValueError: if a formula is malformed; it names the character.

    Example:

    ```python
    >>> from onlstm_hf import logical_relation
    >>> logical_relation("( a ( and b ) )", "a")
    '<'

    ```
    """
    return _relation(_true_worlds(left), _true_worlds(right))


def _relation(left: int, right: int) -> str:
    neither = _ALL_WORLDS ^ (left | right)
    return _RELATIONS.get((left & right > 0, left & ~right > 0, right & ~left > 0, neither > 0), "#")


def _true_worlds(formula: str) -> int:
    """Returns the worlds in which a formula is true, as a bit set."""

    def malformed(position: int, reason: str) -> ValueError:
        return ValueError(f"malformed formula {formula!r} at character {position}: {reason}")

    # Open brackets and operators, worlds of formulas, and operators with the worlds of their right operand.
    stack: list[str | int | tuple[str, int]] = []
    for found in _TOKEN.finditer(formula):
        token = found.group()
        if stack and isinstance(stack[0], int):
            raise malformed(found.start(), "unexpected text after the formula")
        if token != ")":
            if token not in ("(", *OPERATORS, *VARIABLES):
                problem = f"{token!r} is no variable ({' '.join(VARIABLES)}), operator or bracket"
                raise malformed(found.start(), problem)
            stack.append(_WORLDS.get(token, token))
            continue
        match stack[-3:]:
            case ["(", "not", int(operand)]:
                closed = _ALL_WORLDS ^ operand
            case ["(", "and" | "or" as operator, int(operand)]:
                closed = operator, operand
            case ["(", int(left), ("and", right)]:
                closed = left & right
            case ["(", int(left), ("or", right)]:
                closed = left | right
            case _:
                raise malformed(found.start(), "it must close ( not X ), ( X ( and Y ) ) or ( X ( or Y ) )")
        stack[-3:] = [closed]
    if len(stack) != 1 or not isinstance(stack[0], int):
        raise malformed(0, "it is empty, unclosed or incomplete")
    return stack[0]


def generate_logic_pairs(num_pairs: int, seed: int = 0, max_operators: int | None = None) -> Iterator[LogicPair]:
    """Draws distinct pairs like the data of Bowman et al. (2015).

    Both formulas of a pair use the same four of the six variables. A formula is a variable or, with probability 4/9
    and at most three levels deep, two formulas joined by `and` or `or`. Each formula is negated with probability 1/3.
    Tautologies and contradictions are rejected.

    Args:
        num_pairs: number of pairs. The fraction of short pairs falls with it, as there are few different ones. The
            data have about 249,000 pairs.
        seed: equal seeds give equal pairs; a larger `num_pairs` only appends pairs.
        max_operators: rejects pairs with more operators in one of the formulas.

    Raises:
        ValueError: if there seem to be fewer than `num_pairs` such pairs.
    """
    generator = Random(seed)
    seen: set[LogicPair] = set()
    draws = 0
    while len(seen) < num_pairs:
        draws += 1
        if draws > _PATIENCE:
            raise ValueError(f"found only {len(seen)} pairs of at most {max_operators} operators, not {num_pairs}")
        variables = generator.sample(VARIABLES, _VARIABLES_OF_A_PAIR)
        (left, left_worlds), (right, right_worlds) = (_draw(generator, variables, _SIZE_BUDGET) for _ in range(2))
        pair = LogicPair(_relation(left_worlds, right_worlds), left, right)
        if pair in seen or {left_worlds, right_worlds} & {0, _ALL_WORLDS}:
            continue
        if max_operators is None or pair.num_operators <= max_operators:
            draws = 0
            seen.add(pair)
            yield pair


def _draw(generator: Random, variables: list[str], budget: int) -> tuple[str, int]:
    """Draws a formula, and returns it with the worlds in which it is true."""
    if budget > 1 and generator.random() < _BINARY_PROBABILITY:
        (left, left_worlds), (right, right_worlds) = (_draw(generator, variables, budget // 2) for _ in range(2))
        operator = generator.choice(("and", "or"))
        formula = f"( {left} ( {operator} {right} ) )"
        worlds = left_worlds & right_worlds if operator == "and" else left_worlds | right_worlds
    else:
        formula = generator.choice(variables)
        worlds = _WORLDS[formula]
    if generator.random() < _NEGATION_PROBABILITY:
        return f"( not {formula} )", _ALL_WORLDS ^ worlds
    return formula, worlds


def split_by_operators(pairs: Iterable[LogicPair]) -> dict[str, list[LogicPair]]:
    """Splits pairs like the data of Bowman et al.: `train0` ... `train12`, `test0` ... `test12`.

    The number in a name is the number of operators; 12 means 12 or more. The first 85 % of the pairs of each number
    are for training.
    """
    by_operators: list[list[LogicPair]] = [[] for _ in range(MAX_OPERATORS + 1)]
    for pair in pairs:
        by_operators[min(pair.num_operators, MAX_OPERATORS)].append(pair)
    train, test = {}, {}
    for number, group in enumerate(by_operators):
        border = int(_TRAIN_SHARE * len(group))
        train[f"train{number}"], test[f"test{number}"] = group[:border], group[border:]
    return train | test
