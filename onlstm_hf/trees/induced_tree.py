"""Constituency trees over the words of a sentence, converted from and to spans, nested lists and brackets."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
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
    """Constituency tree over the words of a sentence, usually binary; immutable and hashable.

    Make one with `tree_from_distances`, `from_spans`, `from_nested` or `from_bracket`. A constituent has at least two
    words; a sentence of two words or more is a constituent. All methods work for 0 and 1 words and at any depth.

    Attributes:
        words: the words of the sentence.
        bracket_counts: for each word, the number of constituents that begin with it, or minus the number of those that
            end with it. No word does both, as two such constituents would cross.
        distances: the syntactic distance of each word, NaN for a punctuation mark; `None` if the tree was not made
            from distances. Distances do not count for equality.
        offsets: the character offsets `(start, end)` of each word in the text, if known.
        unknown: for each word, whether the model read its unknown token instead, if known.
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
        """Builds the tree with the given constituents, half-open pairs of word indices `(start, end)` in any order.

        The whole sentence is added. Repeated spans and spans of one word change nothing. `distances` are stored.

        Raises:
            ValueError: for spans outside the sentence, spans that cross, and a wrong number of distances.
        """
        words = as_words(words)
        if distances is not None and len(distances) != len(words):
            raise ValueError(f"expected one distance per word, got {len(distances)} for {len(words)} words")
        constituents = {(operator.index(start), operator.index(end)) for start, end in spans}
        if words:
            constituents.add((0, len(words)))
        bracket_counts = [0] * len(words)
        enclosing: list[tuple[int, int]] = []
        for start, end in sorted(constituents, key=outermost_first):
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
        """Builds a tree from nested lists or tuples of words, `["the", ["old", "cat"]]`, or from an `nltk.Tree`.

        Raises:
            ValueError: for anything but words in lists or tuples, and for an inner list without words.
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
        """Reads a tree that is unlabelled, `(the (old cat))`, or has labels to drop, `(NP (DT the) (NN cat))`.

        Args:
            text: the bracketed tree, with the escapes of `to_bracket`. All words are kept; `GoldTree.from_bracket`
                drops punctuation and empty elements.
            labelled: whether the first word in each bracket is a label. By default this is detected: a labelled tree
                has two words or more, each word alone in a bracket with its tag, and a label in each other bracket.
                Unlabelled binary trees and the output of `to_bracket` never have this form.

        Raises:
            ValueError: for malformed brackets, a label without a word, numbered leaves of discontinuous trees
                (`0=is`), no tree, and more than one tree.
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
        """The largest number of constituents around a word: 0 for one word, 1 for a flat tree."""
        return max(accumulate(self.bracket_counts), default=0)

    @property
    def is_binary(self) -> bool:
        """Returns whether every constituent has two parts."""
        num_constituents = sum(count for count in self.bracket_counts if count > 0)
        return num_constituents == max(len(self.words) - 1, 0)

    def spans(self) -> list[tuple[int, int]]:
        """Returns the constituents `(start, end)`, with the whole sentence, sorted by start, longer ones first."""
        starts: list[int] = []
        spans = []
        for index, count in enumerate(self.bracket_counts):
            starts += [index] * count
            spans += [(starts.pop(), index + 1) for _ in range(-count)]
        return sorted(spans, key=outermost_first)

    def to_nested(self) -> str | list:
        """Returns nested lists of words, `["the", ["old", "cat"]]`; one word is a `str`, no word is `[]`."""
        parts = self._fold(list)
        return parts[0] if parts else []

    def to_nltk(self, label: str = "X") -> Any:
        """Returns an `nltk.Tree` with the same label for all constituents; needs `pip install nltk`."""
        from nltk import Tree

        parts = self._fold(lambda children: Tree(label, children))
        return parts[0] if len(self.words) > 1 else Tree(label, parts)

    def to_bracket(self) -> str:
        r"""Returns one line of text, `(the (old cat))`, which `from_bracket` reads back without loss.

        Brackets in words are written as in the Penn Treebank, `-LRB-` and `-RRB-`. A backslash becomes `\\`, a literal
        `-LRB-` becomes `\-LRB-`, white space its code such as `\u0020`, and an empty word a single backslash. If the
        first word of a non-binary tree would look like a label, it gets its own brackets: `((a) (b c) (d e))`.
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
        """Compares the tree with the gold tree of its sentence: shared and crossing constituents, F1, a picture.

        ```python
        >>> tree = InducedTree.from_bracket("(the (old cat))")
        >>> tree.compare("(NP (NP the old) cat)").f1
        0.0

        ```

        Args:
            gold: an `InducedTree`, a `GoldTree`, an `nltk.Tree`, nested lists, or brackets with or without labels. It
                must have the words of this tree; case is ignored, and `N` may replace digits. Punctuation and currency
                signs that one tree lacks are removed from the other. Empty elements are always removed.

        Raises:
            ValueError: if the gold tree is malformed or has other words.
        """
        from .comparison import compare_trees

        return compare_trees(self, gold)

    def to_record(self, text: str) -> dict[str, Any]:
        """Returns a dictionary of JSON values; those that are not available are `None`.

        Returns:
            `text` and `words`; for each word its `offsets` (`[start, end]` in characters of the text), `unknown` (the
            model read its unknown token instead) and `distances`, `None` for a punctuation mark; `brackets`, the
            output of `to_bracket`; `spans`, for each constituent in the order of `spans()` its `text`, `start` and
            `end` in characters, and `word_start` and `word_end` in words.
        """
        offsets, unknown, distances = self.offsets, self.unknown, self.distances
        spans = []
        for word_start, word_end in self.spans():
            start, end = (offsets[word_start][0], offsets[word_end - 1][1]) if offsets else (None, None)
            span = {"text": text[start:end] if offsets else None, "start": start, "end": end}
            spans.append(span | {"word_start": word_start, "word_end": word_end})
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
        """Draws the tree as SVG; see `tree_to_svg`."""
        return tree_to_svg(self, distances, title)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        return tree_to_text(self)

    def __repr__(self) -> str:
        text = self.to_bracket()
        return f"InducedTree({text if len(text) <= 80 else text[:79] + '…'})"

    def _fold(self, make_subtree: Callable[[list], Any]) -> list:
        """Builds the tree bottom-up; returns `[root]`, or the list of words if there are fewer than two."""
        open_constituents: list[list] = [[]]
        for word, count in zip(self.words, self.bracket_counts, strict=True):
            open_constituents += [[] for _ in range(count)]
            open_constituents[-1].append(word)
            for _ in range(-count):
                children = open_constituents.pop()
                open_constituents[-1].append(make_subtree(children))
        return open_constituents[0]


class TreeList(list[InducedTree]):
    """List of trees, as `parse` returns it; notebooks show pictures of the first `NUM_TREES_SHOWN`."""

    def _repr_html_(self) -> str:
        pictures = [f"<div>{tree.to_svg()}</div>" for tree in self[:NUM_TREES_SHOWN]]
        hidden = len(self) - len(pictures)
        return "".join(pictures) + (f"<p>and {hidden} more trees</p>" if hidden else "")


def tree_from_splits(words: Sequence[str], choose_split: Callable[[int, int], int]) -> InducedTree:
    """Builds a binary tree top down; `choose_split` returns the first word of the second part of a constituent."""
    spans = []
    unsplit = [(0, len(words))]
    while unsplit:
        start, end = unsplit.pop()
        if end - start > 1:
            spans.append((start, end))
            split = choose_split(start, end)
            unsplit += [(start, split), (split, end)]
    return InducedTree.from_spans(words, spans)


def as_words(words: Sequence[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not all(issubclass(kind, str) for kind in set(map(type, words))):
        raise ValueError("words must be a sequence of strings, one per word; split the sentence first")
    return tuple(map(str, words))


def outermost_first(span: tuple[int, int]) -> tuple[int, int]:
    """Sort key of spans."""
    return span[0], -span[1]


def cross(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Returns whether two spans overlap and neither contains the other."""
    (start, end), (other_start, other_end) = sorted((one, other))
    return start < other_start < end < other_end


def _words_and_spans(
    root: Any, children_of: Callable[[Any], Iterable[Any]]
) -> tuple[list[str], list[tuple[int, int]]]:
    """Walks a tree with strings as leaves from left to right, without recursion."""
    words: list[str] = []
    spans = []
    # For each open constituent by its id, outermost first: the number of words before it, and its next children.
    unfinished = {None: (0, iter([root]))}
    while unfinished:
        start, children = next(reversed(unfinished.values()))
        for child in children:
            if isinstance(child, str):
                words.append(child)
            elif id(child) in unfinished:
                raise ValueError(f"a constituent contains itself (the one after {len(words)} words)")
            else:
                unfinished[id(child)] = len(words), iter(children_of(child))
                break
        else:
            if start == len(words):
                raise ValueError(f"a constituent has no words (the one after {start} words)")
            spans.append((start, len(words)))
            unfinished.popitem()
    return words, spans
