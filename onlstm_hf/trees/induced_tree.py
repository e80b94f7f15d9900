"""Trees over the words of a sentence: from syntactic distances, bracketed text or spans, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from .drawing import tree_to_svg, tree_to_text


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


def tree_from_distances(
    distances: Sequence[float], words: Sequence[str], branching_bias: str = "right"
) -> InducedTree:
    """Builds the binary tree that splits a sentence at its largest syntactic distance, and its parts likewise.

    Of equal distances the first counts as the largest, except with the rule `"ranges"`.

    Args:
        distances: one number per word (a sequence, or a NumPy array or tensor of shape `[num_words]`). The distance of
            a word tells how far it is from the words before it. The tree keeps them.
        words: the words of the sentence.
        branching_bias: `"right"` is the papers' rule: where word `i` has the largest distance, split into
            `[words before i, [word i, words after i]]` (Shen et al., ICLR 2018 and ICLR 2019). Random distances give
            more right than left branches under it (Dyer, Melis & Blunsom 2019). `"none"` has no such bias: it splits
            into `[words before i, words from i]`, so the distance of the first word is not used. `"ranges"` is the
            rule of the dependency ranges, which the gates of a PRPN are at infinite temperature (Shen et al., ICLR
            2018, appendix on partial overlap): what stands before word `i` in its constituent reaches back to the
            last word with a larger distance. That is `"none"` with the last of equal distances as the largest.

    Returns:
        The tree. 10,000 words take milliseconds, whatever the distances.

    Raises:
        ValueError: if the lengths differ, a distance is NaN, or the bias is unknown.
    """
    words = _as_words(words)
    if hasattr(distances, "tolist"):
        distances = distances.tolist()
    try:
        distances = [float(distance) for distance in distances]
    except TypeError as error:
        raise ValueError("distances must be one flat sequence of numbers, one per word") from error
    if len(distances) != len(words):
        raise ValueError(f"expected one distance per word, got {len(distances)} distances for {len(words)} words")
    for word, distance in zip(words, distances, strict=True):
        if math.isnan(distance):
            raise ValueError(f"the distance of the word {word!r} is NaN; check the model's weights and input")

    if branching_bias == "right":
        spans = []
        for word_index, (start, end) in enumerate(_ranges_of_maxima(distances)):
            spans += [(start, end), (word_index, end)]
    elif branching_bias == "none":
        spans = [(start, end + 1) for start, end in _ranges_of_maxima(distances[1:])]
    elif branching_bias == "ranges":
        last_word = len(words) - 1
        backwards = _ranges_of_maxima(distances[:0:-1])
        spans = [(last_word - end, last_word - start + 1) for start, end in backwards]
    else:
        raise ValueError(f'branching_bias must be "right", "none" or "ranges", got {branching_bias!r}')
    return InducedTree.from_spans(words, spans, distances)


def _ranges_of_maxima(values: Sequence[float]) -> list[tuple[int, int]]:
    """For each index, the widest range `(start, end)` around it in which its value is the first maximum."""
    starts, ends = [0] * len(values), [len(values)] * len(values)
    still_maxima: list[int] = []  # of a range that reaches the present index; their values never increase
    for index, value in enumerate(values):
        while still_maxima and values[still_maxima[-1]] < value:
            ends[still_maxima.pop()] = index
        if still_maxima:
            starts[index] = still_maxima[-1] + 1
        still_maxima.append(index)
    return list(zip(starts, ends, strict=True))


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
            when their words and constituents are, whatever their distances.
    """

    words: tuple[str, ...]
    bracket_counts: tuple[int, ...]
    distances: tuple[float, ...] | None = field(default=None, compare=False)

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
            ValueError: for a span outside the sentence, spans that cross, or a wrong number of distances.
        """
        words = _as_words(words)
        if distances is not None and len(distances) != len(words):
            raise ValueError(f"expected one distance per word, got {len(distances)} distances for {len(words)} words")
        constituents = {(int(start), int(end)) for start, end in spans}
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
            ValueError: for anything else than words in lists or tuples, and for an empty list within another.
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
                these. Every word is kept: to leave out punctuation and empty elements is a treebank reader's work.
            labelled: whether the first word in each bracket is a label. By default a tree counts as labelled if each
                word stands alone in a bracket with its tag, each other bracket has a label, and there are two words
                or more. No binary tree without labels looks so, and what `to_bracket` writes never does.

        Raises:
            ValueError: for malformed brackets, no tree, and more than one tree.
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
        return cls.from_spans([_unescape(word) for word in words], spans)

    @property
    def depth(self) -> int:
        """The largest number of constituents that a word is in: 0 for one word, 1 for a flat tree."""
        return max(accumulate(self.bracket_counts), default=0)

    @property
    def is_binary(self) -> bool:
        """Whether every constituent has two parts."""
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
        """The tree as an `nltk.Tree` whose constituents all have the same label.

        Raises:
            ImportError: where NLTK is not installed.
        """
        try:
            from nltk import Tree
        except ImportError as error:
            raise ImportError('to_nltk needs NLTK: pip install "onlstm_hf[nltk]"') from error
        parts = self._fold(lambda children: Tree(label, children))
        return parts[0] if len(self.words) > 1 else Tree(label, parts)

    def to_bracket(self) -> str:
        r"""The tree as one line of text, `(the (old cat))`, which `from_bracket` reads back without loss.

        Brackets in words are written as in the Penn Treebank, `-LRB-` and `-RRB-`, a backslash as `\\`, a word's own
        `-LRB-` as `\-LRB-`, white space by its code as in `\u0020`, and a word without characters as a lone backslash.
        In a tree that is not binary the first word gets brackets of its own, `((a) (b c) (d e))`, where it would
        otherwise look like a label.
        """
        words = [_escape(word) for word in self.words]
        if len(words) < 2:
            return f"({''.join(words)})"
        text = " ".join(
            "(" * count + word + ")" * -count for word, count in zip(words, self.bracket_counts, strict=True)
        )
        if not self.is_binary and has_labels(next(read_brackets(text))):
            text = f"(({words[0]}){text[1 + len(words[0]) :]}"
        return text

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


def _as_words(words: Sequence[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise ValueError("words must be a sequence of strings, one per word; split the sentence first")
    return tuple(str(word) for word in words)


def _outermost_first(span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    return start, -end


def _words_and_spans(
    root: Any, children_of: Callable[[Any], Iterable[Any]]
) -> tuple[list[str], list[tuple[int, int]]]:
    """Walks a tree whose leaves are strings from left to right, without recursion."""
    words: list[str] = []
    spans = []
    unfinished = [(0, iter([root]))]
    end_of_children = object()
    while unfinished:
        start, children = unfinished[-1]
        child = next(children, end_of_children)
        if child is end_of_children:
            unfinished.pop()
            if start == len(words):
                raise ValueError(f"a constituent has no words (the one after {len(words)} words)")
            spans.append((start, len(words)))
        elif isinstance(child, str):
            words.append(child)
        else:
            unfinished.append((len(words), iter(children_of(child))))
    return words, spans


def has_labels(root: BracketNode) -> bool:
    """Whether the brackets are those of a Penn-style tree of two words or more, `( (S ...) )` included."""
    if root.label is None and len(root.children) == 1 and isinstance(root.children[0], BracketNode):
        root = root.children[0]
    nodes = [root]
    has_two_words = False
    for node in nodes:  # which grows as the walk goes down
        subtrees = [child for child in node.children if isinstance(child, BracketNode)]
        is_tagged_word = len(node.children) == 1 and not subtrees
        is_constituent = len(node.children) == len(subtrees) > 0
        if node.label is None or not (is_tagged_word or is_constituent):
            return False
        has_two_words = has_two_words or len(subtrees) > 1
        nodes += subtrees
    return has_two_words


def _escape(word: str) -> str:
    word = re.sub(r"\\|-(?=[LR]RB[-()])", r"\\\g<0>", word)
    word = word.replace("(", "-LRB-").replace(")", "-RRB-")
    return re.sub(r"\s", lambda space: f"\\u{ord(space[0]):04x}", word) or "\\"


def _unescape(text: str) -> str:
    def original(escape: re.Match[str]) -> str:
        side, code, character = escape.groups()
        if side:
            return "(" if side == "L" else ")"
        return chr(int(code, 16)) if code else character

    return re.sub(r"-([LR])RB-|\\u([0-9a-f]{4})|\\(.?)", original, text)
