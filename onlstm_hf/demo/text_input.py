"""What is typed into the page: sentences, and gold trees in brackets of several kinds."""

import re
from collections.abc import Callable

from ..trees.brackets import BracketNode, has_labels, read_brackets
from ..trees.induced_tree import InducedTree
from ..trees.treebank import GoldTree, Preprocessing

BRACKETS = {"(": ")", "[": "]"}
# S, NP-SBJ-1, PRP$, and the tags of punctuation; no word of a sentence in lower case.
LABEL = re.compile(r"[A-Z][A-Z0-9]*\$?([-=|+][A-Z0-9]+)*|-[A-Z]+-|[.,:$#]|``|''")
# Numbers as in the text that the models were trained on: 1.2 is N, where the papers' protocol of parsing has N.N.
NUMBERS_AS_WORDS = Preprocessing(digits="numbers")


def split_text(text: str) -> list[str]:
    """The sentences and bracketed trees of a text: a sentence a line, a tree over as many lines as it needs.

    A tree begins with a line that begins with a bracket, `(` or `[`, and ends with the line that closes it.

    Raises:
        ValueError: if the brackets of a tree are never closed.
    """
    parts = []
    unclosed = ""
    for line in text.splitlines():
        part = f"{unclosed} {line.strip()}".strip()
        opening = part[:1]
        is_open = opening in BRACKETS and part.count(opening) > part.count(BRACKETS[opening])
        unclosed = part if is_open else ""
        if part and not is_open:
            parts.append(part)
    if unclosed:
        raise ValueError(
            f"the brackets of {unclosed[:40]!r} are never closed; a line that begins with a bracket begins a gold tree"
        )
    return parts


def read_gold_tree(text: str) -> GoldTree | None:
    """The gold tree in a part of a text, `None` if it is a sentence.

    Args:
        text: a tree is anything between brackets, round or square: with labels, and with tags or without them,
            `(S (NP (DT the) (NN cat)) (VP sat))`, whose words are preprocessed as the papers do it except for
            numbers; or without labels, `((the cat) sat)`, whose words are kept. Brackets have labels if all of them
            begin with a word in capital letters, or if each word has a bracket of its own with a tag in it.

    Raises:
        ValueError: for malformed brackets and for several trees.
    """
    if not text or text[-1] != BRACKETS.get(text[0]):
        return None
    if text[0] == "[":
        text = text.translate(str.maketrans("[]", "()"))
    root, *others = read_brackets(text)
    if others:
        raise ValueError(f"expected one tree a line, got {1 + len(others)} in {text[:40]!r}")
    if has_labels(root) or _begin_with_labels(root):
        return GoldTree.from_bracket(text, NUMBERS_AS_WORDS)
    tree = InducedTree.from_bracket(text, labelled=False)
    return GoldTree(tree.words, tuple(("", *span) for span in tree.spans()))


def spell_gold_tree(gold: GoldTree, spell: Callable[[str], str]) -> GoldTree:
    """The gold tree with each word spelt as in a sentence, where it may be several words or none."""
    spelt = [spell(word).split() for word in gold.words]
    starts = [0]
    for words in spelt:
        starts.append(starts[-1] + len(words))
    constituents = [(label, starts[start], starts[end]) for label, start, end in gold.constituents]
    words = tuple(word for words in spelt for word in words)
    return GoldTree(words, tuple(item for item in constituents if item[2] - item[1] > 1))


def _begin_with_labels(root: BracketNode) -> bool:
    if root.label is None and len(root.children) > 1:
        return False
    nodes = [root]
    for node in nodes:  # which grows as the walk goes down
        if node.label is not None and not (node.children and LABEL.fullmatch(node.label)):
            return False
        nodes += [child for child in node.children if isinstance(child, BracketNode)]
    return True
