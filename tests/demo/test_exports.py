import pytest

from onlstm_hf import InducedTree
from onlstm_hf.demo.exports import to_forest, to_qtree, to_square_brackets
from onlstm_hf.demo.text_input import read_gold_tree

TREE = InducedTree.from_nested(["the", [["old", "cat"], "sat"]])


def test_trees_in_the_forms_of_other_programs():
    assert to_square_brackets(TREE) == "[the [[old cat] sat]]"
    assert to_qtree(TREE) == r"\Tree [.{} {the} [.{} [.{} {old} {cat} ] {sat} ] ]"
    assert to_forest(TREE).splitlines()[1] == "[[{the}] [[[{old}] [{cat}]] [{sat}]]]"


def test_square_brackets_are_read_back():
    gold = read_gold_tree(to_square_brackets(TREE))
    assert gold.words == TREE.words and gold.spans() == TREE.spans()


@pytest.mark.parametrize("words", [[], ["cat"]])
def test_trees_without_constituents_have_one_pair_of_brackets(words):
    tree = InducedTree.from_spans(words, [])
    for export in (to_square_brackets, to_qtree):
        assert export(tree).count("[") == export(tree).count("]") == 1


def test_what_means_something_to_latex_is_escaped():
    tree = InducedTree.from_spans(["$5", "50%", "a_b^c", "{x}\\y", "#&~", "]["], [])
    assert r"{\$5} {50\%} {a\_b\textasciicircum{}c} {\{x\}\textbackslash{}y} {\#\&\textasciitilde{}} {][}" in to_qtree(
        tree
    )
    assert "-RSB--LSB-" in to_square_brackets(tree)
