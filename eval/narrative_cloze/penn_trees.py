"""Penn Treebank trees with function tags and empty elements, the heads of their noun phrases, and lemmas."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eval.task import import_extra
from onlstm_hf.trees.brackets import BracketNode, read_brackets
from onlstm_hf.trees.treebank import PUNCTUATION_TAGS, Preprocessing, treebank_files
from onlstm_hf.utils.files import read_text_file

EMPTY = "-NONE-"
NOUN_TAGS = frozenset({"NN", "NNS", "NNP", "NNPS"})
# Rules for noun phrases in order: direction of the search among the parts, and categories to find.
_NOUN_RULES = (
    (reversed, NOUN_TAGS | {"NX", "POS", "JJR"}),
    (iter, frozenset({"NP", "WHNP"})),
    (reversed, frozenset({"$", "ADJP", "PRN"})),
    (reversed, frozenset({"CD"})),
    (reversed, frozenset({"JJ", "JJS", "RB", "QP"})),
)
_AMOUNT_RULES = ((iter, frozenset({"$"})),)
_WRITTEN = Preprocessing(digits="numbers")


@dataclass(eq=False)
class Node:
    """A constituent or a word."""

    category: str  # label without function tags and index, such as `NP` of `NP-SBJ-1`, or the tag of a word
    functions: frozenset[str] = frozenset()  # function tags, such as `{"SBJ"}`
    index: str | None = None  # number by which empty elements refer to the node
    word: str | None = None  # text of a leaf
    children: list[Node] = field(default_factory=list)
    parent: Node | None = field(default=None, repr=False)

    @classmethod
    def from_bracket(cls, bracket: BracketNode) -> Node:
        """Converts a bracketed tree with leaves `(TAG word)`."""
        label, parts = bracket.label, bracket.children
        if label is None:
            if len(parts) != 1:
                raise ValueError("a bracket without a label has several parts; expected ( (S ...) )")
            return cls.from_bracket(parts[0])
        if len(parts) == 1 and isinstance(parts[0], str):
            return cls(label, word=parts[0])
        if not parts or any(isinstance(part, str) for part in parts):
            raise ValueError(f"the constituent {label} has a word without a tag, or is empty")
        category, *rest = re.split("[-=|]", label)
        index = re.search(r"-(\d+)", label)
        functions = frozenset(part for part in rest if part.isalpha())
        node = cls(category, functions, index[1] if index else None, children=list(map(cls.from_bracket, parts)))
        for child in node.children:
            child.parent = node
        return node

    def nodes(self) -> Iterator[Node]:
        """Yields this node and its descendants in preorder."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def words(self) -> Iterator[Node]:
        """Yields the words of the node from left to right, without empty elements."""
        return (node for node in self.nodes() if node.word is not None and node.category != EMPTY)

    def ancestors(self) -> Iterator[Node]:
        """Yields the parent and all higher ancestors in order."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def siblings(self) -> tuple[list[Node], list[Node]]:
        """Returns the siblings on the left and those on the right, the nearest first."""
        siblings = self.parent.children if self.parent else [self]
        place = siblings.index(self)
        return siblings[:place][::-1], siblings[place + 1 :]

    def empty_element(self) -> str | None:
        """Returns the trace of a constituent without words (`*T*-1`), `None` if it has words."""
        if next(self.words(), None) is not None:
            return None
        return next((node.word for node in self.nodes() if node.word is not None), None)


def read_documents(paths: Sequence[str | os.PathLike]) -> list[list[Node]]:
    """Reads the trees of each document of files, or of the `.mrg` files of folders, in order.

    Every file and every tree after an empty line begins a document. (The free sample of the Penn Treebank in one file
    has 197 instead of 199 documents, since two are not preceded by an empty line.)
    """
    documents = []
    for file in treebank_files(paths):
        try:
            for text in re.split(r"\n\s*\n(?=\()", "\n".join(read_text_file(file))):
                documents.append([Node.from_bracket(bracket) for bracket in read_brackets(text)])
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    return [trees for trees in documents if trees]


def head_word(node: Node) -> Node | None:
    """Returns the head of a noun phrase as a leaf, by the rules of Collins (1999, appendix A).

    The head of a phrase without a rule, such as the `ADJP` of "the rich", is its last part. Punctuation and empty
    elements are ignored. A phrase without words has the head `None`.
    """
    while node.word is None:
        parts = [child for child in node.children if _is_overt(child)]
        if not parts:
            return None
        rules = _AMOUNT_RULES if node.category == "QP" else _NOUN_RULES
        if node.category not in ("NP", "NX", "WHNP", "NAC", "QP"):
            rules = ()
        matches = (part for direction, categories in rules for part in direction(parts) if part.category in categories)
        node = next(matches, parts[-1])
    return node


def _is_overt(node: Node) -> bool:
    return any(word.category not in PUNCTUATION_TAGS for word in node.words())


def verb_lemma(verb: Node) -> str:
    return _lemma(verb.word, "VERB")


def noun_lemma(head: Node) -> str:
    """Returns the lemma of a plural noun; any other head in lower case, with `N` for a number in digits."""
    return _lemma(head.word, "NOUN") if head.category == "NNS" else _WRITTEN.word(head.word)


def _lemma(word: str, part_of_speech: str) -> str:
    lemminflect = import_extra("lemminflect", "lemmas")
    return lemminflect.getLemma(word.lower(), part_of_speech)[0]
