"""Trees as other programs read them: square brackets, and LaTeX for `qtree` and `forest`."""

import re

from ..trees.induced_tree import InducedTree

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def to_square_brackets(tree: InducedTree) -> str:
    """`[the [old cat]]`, which the page reads as a gold tree, too."""
    words = [word.replace("[", "-LSB-").replace("]", "-RSB-") for word in tree.words]
    return _with_brackets(tree, words, "[", "]")


def to_qtree(tree: InducedTree) -> str:
    r"""`\Tree [ {the} [ {old} {cat} ] ]`, for `qtree` and `tikz-qtree`."""
    return rf"\Tree {_with_brackets(tree, _latex_words(tree), '[ ', ' ]')}"


def to_forest(tree: InducedTree) -> str:
    r"""A `forest` environment, which needs `\usepackage[linguistics]{forest}`."""
    nodes = _with_brackets(tree, [f"[{word}]" for word in _latex_words(tree)], "[", "]")
    return f"\\begin{{forest}} nice empty nodes\n{nodes}\n\\end{{forest}}"


def _with_brackets(tree: InducedTree, words: list[str], opening: str, closing: str) -> str:
    text = " ".join(
        opening * count + word + closing * -count for word, count in zip(words, tree.bracket_counts, strict=True)
    )
    return text if len(words) > 1 else f"{opening}{text}{closing}"


def _latex_words(tree: InducedTree) -> list[str]:
    return ["{" + re.sub(r"[\\~^&%$#_{}]", lambda found: _LATEX[found[0]], word) + "}" for word in tree.words]
