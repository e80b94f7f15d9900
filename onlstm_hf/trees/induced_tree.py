"""A constituency tree over the words of a sentence: from spans, nested lists or bracketed text, and back."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .brackets import BracketNode, escape_word, has_labels, read_brackets, refuse_discontinuous, unescape_word
from .drawing import tree_to_svg, tree_to_text

if TYPE_CHECKING:
    from .comparison import TreeComparison

NUM_TREES_SHOWN = 20


@dataclass(frozen=True, slots=True, repr=False)
class InducedTree:
    """A constituency tree over the words of a sentence, usually binary; immutable, hashable and picklable.

    Make one with `tree_from_distances`, `from_spans`, `from_nested` or `from_bracket`. A constituent has at least two
    words; a sentence of two words or more is one itself. Every method works for 0 and 1 words and at any depth.

    Attributes:
        words: the words of the sentence.
        bracket_counts: for each word the number of constituents that begin with it, or minus the number of those that
            end with it. (No word does both: two such constituents would cross.)
        distances: the syntactic distance of each word, for a tree made from distances, else `None`. Trees are equal
            when their words and constituents are, whatever their distances. A punctuation mark as a leaf has NaN.
        offsets: the place `(start, end)` of each word in the text, in characters, where the tree is of a text.
        unknown: for each word whether the model read its unknown token instead, where that is known.
    """

    words: tuple[str, ...]
    bracket_counts: tuple[int, ...]
    distances: tuple[float, ...] | None = field(default=None, compare=False)
    offsets: tuple[tuple[int, int], ...] | None = field(default=None, compare=False)
    unknown: tuple[bool, ...] | None = field(default=None, compare=False)

    @classmethod
    def from_spans(
        cls, words: Sequence[str], spans: Iterable[tuple[int, int]], distances: Sequence[float] | None = None
    ) -> InducedTree:
        """Builds the tree that has the given constituents.

        Args:
            words: the words of the sentence.
            spans: half-open pairs of word indices `(start, end)`, in any order. The whole sentence is added; repeated
                spans and spans of one word change nothing.
            distances: numbers to keep with the tree, one per word.

        Raises:
            ValueError: for a span outside the sentence or not of integers, spans that cross, or a wrong number of
                distances.
        """
        words = as_words(words)
        if distances is not None and len(distances) != len(words):
            raise ValueError(f"expected one distance per word, got {len(distances)} distances for {len(words)} words")
        try:
            constituents = {(operator.index(start), operator.index(end)) for start, end in spans}
        except TypeError as error:
            raise ValueError("spans must be pairs (start, end) of integers") from error
        if words:
            constituents.add((0, len(words)))
        bracket_counts = [0] * len(words)
        enclosing: list[tuple[int, int]] = []
        for start, end in sorted(constituents, key=_outermost_first):
            if not 0 <= start < end <= len(words):
                raise ValueError(f"({start}, {end}) is not a span of a sentence of {len(words)} words")
            while enclosing and enclosing[-1][1] <= start:
                enclosing.pop()
            if enclosing and enclosing[-1][1] < end:
                raise ValueError(f"the spans {enclosing[-1]} and {(start, end)} cross")
            enclosing.append((start, end))
            if end - start > 1:
                bracket_counts[start] += 1
                bracket_counts[end - 1] -= 1
        return cls(words, tuple(bracket_counts), None if distances is None else tuple(distances))

    @classmethod
    def from_nested(cls, nested: str | Sequence) -> InducedTree:
        """Builds a tree from nested lists or tuples of words: `["the", ["old", "cat"]]`; an `nltk.Tree` is one, too.

        Raises:
            ValueError: for anything but words in lists or tuples, and for a list within another that is empty or
                contains itself.
        """
        if isinstance(nested, list | tuple) and not nested:
            return cls.from_spans((), ())

        def children(subtree: Any) -> Sequence:
            if not isinstance(subtree, list | tuple):
                raise ValueError(f"a subtree must be a word or a list of subtrees, got {type(subtree).__name__}")
            return subtree

        return cls.from_spans(*_words_and_spans(nested, children))

    @classmethod
    def from_bracket(cls, text: str, labelled: bool | None = None) -> InducedTree:
        """Reads one tree, either unlabelled, `(the (old cat))`, or with labels to leave out, `(NP (DT the) (NN cat))`.

        Args:
            text: the bracketed tree. Words are escaped as `to_bracket` does it; Penn Treebank's own escapes are among
                these. Every word is kept; `GoldTree.from_bracket` leaves out punctuation and empty elements.
            labelled: whether the first word in each bracket is a label. By default a tree counts as labelled if each
                word stands alone in a bracket with its tag, each other bracket has a label, and there are two words
                or more. No binary tree without labels looks so, and what `to_bracket` writes never does.

        Raises:
            ValueError: for malformed brackets, a label without a word, leaves that are numbered (`0=is`) as in
                discontinuous trees, no tree, and more than one tree.
        """
        if re.fullmatch(r"\s*\(\s*\)\s*", text):
            return cls.from_spans((), ())
        roots = list(read_brackets(text))
        if len(roots) != 1:
            raise ValueError(f"expected one bracketed tree, got {len(roots)}: {text[:60]!r}")
        if labelled is None:
            labelled = has_labels(roots[0])

        def children(node: BracketNode) -> list[BracketNode | str]:
            return node.children if labelled or node.label is None else [node.label, *node.children]

        words, spans = _words_and_spans(roots[0], children)
        refuse_discontinuous(words, roots[0])
        return cls.from_spans([unescape_word(word) for word in words], spans)

    @property
    def depth(self) -> int:
        """The largest number of constituents that a word is in: 0 for one word, 1 for a flat tree."""
        return max(accumulate(self.bracket_counts), default=0)

    @property
    def is_binary(self) -> bool:
        """Returns whether every constituent has two parts."""
        num_constituents = sum(count for count in self.bracket_counts if count > 0)
        return num_constituents == max(len(self.words) - 1, 0)

    def spans(self) -> list[tuple[int, int]]:
        """The constituents, the whole sentence included, as `(start, end)`, by start, the longer of two first."""
        starts: list[int] = []
        spans = []
        for index, count in enumerate(self.bracket_counts):
            starts += [index] * count
            spans += [(starts.pop(), index + 1) for _ in range(-count)]
        return sorted(spans, key=_outermost_first)

    def to_nested(self) -> str | list:
        """The tree as nested lists of words, `["the", ["old", "cat"]]`; one word is a `str`, no word `[]`."""
        parts = self._fold(list)
        return parts[0] if parts else []

    def to_nltk(self, label: str = "X") -> Any:
        """Returns an `nltk.Tree` whose constituents all have the same label.

        Raises:
            ImportError: where NLTK is not installed.
        """
        try:
            from nltk import Tree
        except ImportError as error:
            raise ImportError("to_nltk needs NLTK: pip install nltk") from error
        parts = self._fold(lambda children: Tree(label, children))
        return parts[0] if len(self.words) > 1 else Tree(label, parts)

    def to_bracket(self) -> str:
        r"""Returns one line of text, `(the (old cat))`, which `from_bracket` reads back without loss.

        Brackets in words are written as in the Penn Treebank, `-LRB-` and `-RRB-`, a backslash as `\\`, a word's own
        `-LRB-` as `\-LRB-`, white space by its code as in `\u0020`, and a word without characters as a lone backslash.
        In a tree that is not binary the first word gets brackets of its own, `((a) (b c) (d e))`, where it would
        otherwise look like a label.
        """
        words = [escape_word(word) for word in self.words]
        if len(words) < 2:
            return f"({''.join(words)})"
        text = " ".join(
            "(" * count + word + ")" * -count for word, count in zip(words, self.bracket_counts, strict=True)
        )
        if not self.is_binary and has_labels(next(read_brackets(text))):
            text = f"(({words[0]}){text[1 + len(words[0]) :]}"
        return text

    def compare(self, gold: Any) -> TreeComparison:
        """Compares the tree with the gold tree of its sentence: constituents that are shared or cross, F1, a picture.

        ```python
        >>> tree = InducedTree.from_bracket("(the (old cat))")
        >>> tree.compare("(NP (NP the old) cat)").f1
        0.0

        ```

        Args:
            gold: an `InducedTree`, a `GoldTree`, an `nltk.Tree`, nested lists, or brackets with labels or without. Its
                words must be those of this tree, whatever their capitals; `N` may stand for digits. Marks and currency
                signs that one of the trees lacks are left out of the other, and empty elements always.

        Returns:
            A `TreeComparison`.

        Raises:
            ValueError: if the gold tree is malformed or has other words.
        """
        from .comparison import compare_trees

        return compare_trees(self, gold)

    def to_record(self, text: str) -> dict[str, Any]:
        """The tree as plain values, which JSON can hold.

        Args:
            text: the sentence, which the offsets are of.

        Returns:
            `text`; `words`; `offsets`, a `[start, end]` for each word in characters of the text; `unknown`, for each
            word whether the model read its unknown token instead; `brackets` as `to_bracket` writes them; `spans`, a
            dictionary for each constituent of two words or more, by start, the longer of two first: its `text`,
            `start` and `end` in characters and `word_start` and `word_end` in words; `distances`, a number for each
            word, `None` for a punctuation mark. Unknown values are `None`.
        """
        spans = []
        for word_start, word_end in self.spans():
            inside = start = end = None
            if self.offsets is not None:
                start, end = self.offsets[word_start][0], self.offsets[word_end - 1][1]
                inside = text[start:end]
            span = {"text": inside, "start": start, "end": end, "word_start": word_start, "word_end": word_end}
            spans.append(span)
        offsets, unknown, distances = self.offsets, self.unknown, self.distances
        return {
            "text": text,
            "words": list(self.words),
            "offsets": None if offsets is None else list(map(list, offsets)),
            "unknown": None if unknown is None else list(unknown),
            "brackets": self.to_bracket(),
            "spans": spans,
            "distances": None if distances is None else [None if math.isnan(x) else x for x in distances],
        }

    def to_svg(self, distances: Sequence[float] | None = None, title: str | None = None) -> str:
        """The tree as an SVG picture; see `tree_to_svg`."""
        return tree_to_svg(self, distances, title)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        return tree_to_text(self)

    def __repr__(self) -> str:
        text = self.to_bracket()
        return f"InducedTree({text if len(text) <= 80 else text[:79] + '…'})"

    def _fold(self, make_subtree: Callable[[list], Any]) -> list:
        """The tree built bottom up: `[root]`, or the list of words where there are fewer than two."""
        open_constituents: list[list] = [[]]
        for word, count in zip(self.words, self.bracket_counts, strict=True):
            open_constituents += [[] for _ in range(count)]
            open_constituents[-1].append(word)
            for _ in range(-count):
                children = open_constituents.pop()
                open_constituents[-1].append(make_subtree(children))
        return open_constituents[0]


class TreeList(list[InducedTree]):
    """A list of trees, as `parse` returns it; a notebook shows the pictures of the first `NUM_TREES_SHOWN`."""

    def _repr_html_(self) -> str:
        pictures = [f"<div>{tree.to_svg()}</div>" for tree in self[:NUM_TREES_SHOWN]]
        hidden = len(self) - len(pictures)
        return "".join(pictures) + (f"<p>and {hidden} more trees</p>" if hidden else "")


def as_words(words: Sequence[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not all(issubclass(kind, str) for kind in set(map(type, words))):
        raise ValueError("words must be a sequence of strings, one per word; split the sentence first")
    return tuple(map(str, words))


def _outermost_first(span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    return start, -end


def _words_and_spans(
    root: Any, children_of: Callable[[Any], Iterable[Any]]
) -> tuple[list[str], list[tuple[int, int]]]:
    """Walks a tree whose leaves are strings from left to right, without recursion."""
    words: list[str] = []
    spans = []
    # By the identity of each constituent, the outermost first: how many words are before it, and what is left of it.
    unfinished: dict[int | None, tuple[int, Iterator[Any]]] = {None: (0, iter([root]))}
    end_of_children = object()
    while unfinished:
        start, children = next(reversed(unfinished.values()))
        child = next(children, end_of_children)
        if child is end_of_children:
            unfinished.popitem()
            if start == len(words):
                raise ValueError(f"a constituent has no words (the one after {len(words)} words)")
            spans.append((start, len(words)))
        elif isinstance(child, str):
            words.append(child)
        elif id(child) in unfinished:
            raise ValueError(f"a constituent contains itself (the one after {len(words)} words)")
        else:
            unfinished[id(child)] = len(words), iter(children_of(child))
    return words, spans
