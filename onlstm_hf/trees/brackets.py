"""Bracketed trees as they stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class BracketNode(NamedTuple):
    """One pair of brackets as it stands in the text, before anyone decides what its parts mean.

    `label` is the text right after the opening bracket, `None` where another bracket follows at once. In a Penn-style
    tree it is the label or tag (`(NP (DT the) (NN cat))`); in an unlabelled tree it is the first word (`(the cat)`).
    `children` are the remaining parts in order: brackets and bare words. Words stand as they were written.
    """

    label: str | None
    children: list[BracketNode | str]


def read_brackets(text: str) -> Iterator[BracketNode]:
    """Reads every bracketed tree of a text, one after the other, to any depth.

    Args:
        text: any number of trees, for instance the content of a `.mrg` file: `( (S (NP (DT the) (NN cat)) ...) )`.

    Yields:
        The outermost brackets of each tree.

    Raises:
        ValueError: for brackets that do not match, `()` and words outside brackets, with line and column.
    """

    def malformed(problem: str, position: int) -> ValueError:
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        return ValueError(f"malformed brackets: {problem} at line {line}, column {column}")

    open_brackets: list[tuple[int, list]] = []  # where each bracket opened, and its parts so far
    for token in re.finditer(r"[()]|[^\s()]+", text):
        if token[0] == "(":
            open_brackets.append((token.start(), []))
        elif not open_brackets:
            raise malformed(f"{token[0]!r} outside brackets", token.start())
        elif token[0] == ")":
            start, parts = open_brackets.pop()
            if not parts:
                raise malformed("nothing between '(' and ')'", start)
            has_label = isinstance(parts[0], str)
            node = BracketNode(parts[0], parts[1:]) if has_label else BracketNode(None, parts)
            if open_brackets:
                open_brackets[-1][1].append(node)
            else:
                yield node
        else:
            open_brackets[-1][1].append(token[0])
    if open_brackets:
        raise malformed("'(' is never closed", open_brackets[-1][0])


def has_labels(root: BracketNode) -> bool:
    """Whether the brackets are those of a Penn-style tree of two words or more, `( (S ...) )` included."""
    if root.label is None and len(root.children) == 1 and isinstance(root.children[0], BracketNode):
        root = root.children[0]
    nodes = [root]
    has_two_words = False
    for node in nodes:  # the list grows while it is walked
        subtrees = [child for child in node.children if isinstance(child, BracketNode)]
        is_tagged_word = len(node.children) == 1 and not subtrees
        is_constituent = len(node.children) == len(subtrees) > 0
        if node.label is None or not (is_tagged_word or is_constituent):
            return False
        has_two_words = has_two_words or len(subtrees) > 1
        nodes += subtrees
    return has_two_words


def escape_word(word: str) -> str:
    word = re.sub(r"\\|-(?=[LR]RB[-()])", r"\\\g<0>", word)
    word = word.replace("(", "-LRB-").replace(")", "-RRB-")
    return re.sub(r"\s", lambda space: f"\\u{ord(space[0]):04x}", word) or "\\"


def unescape_word(text: str) -> str:
    def original(escape: re.Match[str]) -> str:
        side, code, character = escape.groups()
        if side:
            return "(" if side == "L" else ")"
        return chr(int(code, 16)) if code else character

    return re.sub(r"-([LR])RB-|\\u([0-9a-f]{4})|\\(.?)", original, text)
