"""Parser and escapes for bracketed trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

# Other white space, such as the no-break space, is part of words.
_TOKEN = re.compile(r"[()]|[^ \t\n\r\f\v()]+")


@dataclass(slots=True)
class BracketNode:
    """One pair of brackets, not yet interpreted.

    Attributes:
        label: the text right after the opening bracket, which is the first word of an unlabelled tree, `(the cat)`;
            `None` if another bracket follows directly.
        children: the remaining parts in order, brackets and words, with their escapes.
        text, start: the text that was read, and the position of the opening bracket.
    """

    label: str | None
    children: list[BracketNode | str]
    text: str = field(default="", compare=False, repr=False)
    start: int = field(default=0, compare=False)

    def error(self, problem: str) -> ValueError:
        """Returns an error that names the position of the bracket."""
        line, column = self.text.count("\n", 0, self.start) + 1, self.start - self.text.rfind("\n", 0, self.start)
        return ValueError(f"malformed brackets: {problem} at line {line}, column {column}")


def read_brackets(text: str) -> Iterator[BracketNode]:
    """Reads all bracketed trees of a text, one by one, without a depth limit.

    Args:
        text: any number of trees such as `( (S (NP (DT the) (NN cat)) ...) )`; words end at ASCII white space.

    Yields:
        The root of each tree.

    Raises:
        ValueError: for unbalanced brackets, `()` and words outside brackets; it names line and column.
    """
    open_brackets: list[BracketNode] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "(":
            open_brackets.append(BracketNode(None, [], text, token.start()))
        elif not open_brackets:
            raise BracketNode(None, [], text, token.start()).error(f"{token[0]!r} outside brackets")
        elif token[0] == ")":
            node = open_brackets.pop()
            if not node.children:
                raise node.error("nothing between '(' and ')'")
            if isinstance(node.children[0], str):
                node.label = node.children.pop(0)
            if open_brackets:
                open_brackets[-1].children.append(node)
            else:
                yield node
        else:
            open_brackets[-1].children.append(token[0])
    if open_brackets:
        raise open_brackets[-1].error("'(' is never closed")


def has_labels(root: BracketNode) -> bool:
    """Returns whether the root is a Penn-style tree of two words or more; it may be wrapped as `( (S ...) )`.

    A tree that would be Penn-style except for a label without a word, `(NN )`, is a `ValueError`.
    """
    if root.label is None and len(root.children) == 1 and isinstance(root.children[0], BracketNode):
        root = root.children[0]
    nodes, has_two_words = [root], False
    for node in nodes:  # the list grows while it is walked
        subtrees = [child for child in node.children if isinstance(child, BracketNode)]
        if node.label is None or len(node.children) > max(len(subtrees), 1):
            return False
        has_two_words = has_two_words or len(subtrees) > 1
        nodes += subtrees
    if has_two_words and (empty := [node for node in nodes if not node.children]):
        raise empty[0].error(f"the label {empty[0].label!r} has no word")
    return has_two_words


def refuse_discontinuous(leaves: Sequence[str], root: BracketNode) -> None:
    """Raises a `ValueError` for numbered leaves (`0=is`): constituents of such a tree may have gaps."""
    if leaves and all(re.match(r"[0-9]+=", leaf) for leaf in leaves):
        raise root.error(
            f"leaves are numbered ({leaves[0]!r}), so constituents can have gaps, which is not supported: convert the "
            "file to continuous trees; the discontinuous tree begins"
        )


def write_nltk_tree(tree: Any) -> str:
    """Writes an `nltk.Tree` so that `read_brackets` finds the same nodes; leaves and labels are escaped.

    Leaves must be words that are not empty, and their nodes must have labels.
    """
    parts: list[str] = []
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if node is None:
            parts.append(")")
        elif isinstance(node, str):
            parts.append(f" {escape_leaf(node)}")
        elif hasattr(node, "label"):
            label = str(node.label() or "")
            if not label and len(node) and isinstance(node[0], str):
                raise ValueError(f"an nltk.Tree without a label has the word {node[0]!r}")
            parts.append(f" ({escape_leaf(label) if label else ''}")
            waiting += [None, *reversed(node)]
        else:
            raise ValueError(f"a leaf of an nltk.Tree must be a word, got {type(node).__name__}")
    return "".join(parts).strip()


def escape_leaf(text: str) -> str:
    r"""Escapes white space and brackets in a word or label of a Penn-style tree, as `\u0020`; refuses an empty one."""
    if not text:
        raise ValueError("an empty word or label cannot stand in a bracketed tree")
    return re.sub(r"[ \t\n\r\f\v()]|\\(?=u[0-9a-f]{4})", lambda match: f"\\u{ord(match[0]):04x}", text)


def unescape_leaf(text: str) -> str:
    """Reverses `escape_leaf`; other escapes of the Penn Treebank stay unchanged."""
    return re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), text)


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
