"""Trees, scores, exports and tables of the page, compared with the package."""

import csv
import io
import random

import pytest

from onlstm_hf import InducedTree, tree_from_distances
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.baselines import left_branching_tree, right_branching_tree, uniform_random_tree
from tests.helpers.page_scripts import run_script
from tests.helpers.random_trees import as_gold, numbered

RULES = ("right", "none", "ranges")
WORDS = numbered(40)


def random_distances(generator):
    """Generates distances of sentences, some with ties."""
    for _ in range(400):
        length = generator.randrange(0, 24)
        values = [generator.random() for _ in range(length)]
        yield [round(value, generator.choice((1, 3))) for value in values]


def random_tree(generator, length):
    """Generates a tree with this number of words, usually not binary."""
    spans = uniform_random_tree(WORDS[:length], generator).spans()
    return InducedTree.from_spans(WORDS[:length], [span for span in spans if generator.random() < 0.7])


def test_trees_from_random_distances_and_their_splits_match_the_package():
    cases = [(values, rule) for values in random_distances(random.Random(0)) for rule in RULES]
    found = run_script(
        """return data.map(([values, rule]) => {
             const tree = trees.treeFromDistances(values, values.map((_, index) => `w${index}`), rule);
             return [tree.spans, trees.splitsOf(tree, rule)];
           })""",
        cases,
        trees="trees/distances.js",
    )
    for (values, rule), (spans, steps) in zip(cases, found, strict=True):
        assert list(map(tuple, spans)) == tree_from_distances(values, WORDS[: len(values)], rule).spans()
        assert sorted(span for step in steps for span in step["made"]) == sorted(spans)  # each once
        order = [step["distance"] for step in steps]
        assert order == sorted(order, reverse=True)
        for step in steps:
            start, end = step["span"]
            inside = values[start:end] if rule == "right" else values[start + 1 : end]
            assert step["distance"] == values[step["word"]] == max(inside)
            assert [word for part in step["parts"] for word in range(*part)] == list(range(start, end))


def test_ten_thousand_words_do_not_overflow_a_stack():
    number = run_script(
        """const words = Array.from({ length: 10000 }, (_, index) => `w${index}`);
           return data.map((rule) => {
             const tree = trees.treeFromDistances(words.map((_, index) => index), words, rule);
             return [tree.spans.length, trees.splitsOf(tree, rule).length > 0];
           })""",
        RULES,
        trees="trees/distances.js",
    )
    assert [count for count, _ in number] == [9999] * 3 and all(found for _, found in number)


def test_scores_of_random_trees_match_the_package():
    generator = random.Random(2)
    pairs = [[random_tree(generator, length) for _ in range(2)] for length in range(1, 30) for _ in range(8)]
    scores = run_script(
        "return data.map(([tree, gold]) => scores.score(tree, gold))",
        [list(map(as_json, pair)) for pair in pairs],
        scores="trees/scores.js",
    )
    for (tree, gold), found in zip(pairs, scores, strict=True):
        expected = score_parses([tree], [as_gold(gold)], num_resamples=0).to_dict()
        for rate in ("f1", "precision", "recall"):
            assert found[rate] == pytest.approx(expected[f"sentence_{rate}"], abs=1e-12)


def test_baselines_match_the_package():
    found = run_script(
        "return data.map((words) => [spans.rightBranching(words).spans, spans.leftBranching(words).spans])",
        [WORDS[:length] for length in range(8)],
        spans="trees/spans.js",
    )
    for length, (right, left) in enumerate(found):
        assert [tuple(span) for span in right] == right_branching_tree(WORDS[:length]).spans()
        assert [tuple(span) for span in left] == left_branching_tree(WORDS[:length]).spans()


def test_brackets_match_the_package():
    generator = random.Random(4)
    trees = [random_tree(generator, length) for length in range(9) for _ in range(60)]
    found = run_script(
        "return data.map((tree) => [exports.toBrackets(tree), exports.toSquareBrackets(tree)])",
        [as_json(tree) for tree in trees],
        exports="trees/exports.js",
    )
    for tree, (round_brackets, square_brackets) in zip(trees, found, strict=True):
        assert round_brackets == tree.to_bracket()
        assert square_brackets == round_brackets.translate(str.maketrans("()", "[]"))
    nasty = InducedTree.from_nested([["(", "a)b"], ["-LRB-", "\\x", "]["]])
    text = run_script("return exports.toBrackets(data)", as_json(nasty), exports="trees/exports.js")
    assert InducedTree.from_bracket(text, labelled=False) == nasty


def as_json(tree):
    return {"words": list(tree.words), "spans": tree.spans()}


def written(tree):
    """Returns a tree in square brackets and in the formats of two LaTeX packages, qtree and forest."""
    body = "return [exports.toSquareBrackets(data), exports.toQtree(data), exports.toForest(data)]"
    return run_script(body, as_json(tree), exports="trees/exports.js")


def test_trees_in_formats_of_other_programs():
    square, qtree, forest = written(InducedTree.from_nested(["the", [["old", "cat"], "sat"]]))
    assert square == "[the [[old cat] sat]]"
    assert qtree == r"\Tree [.{} {the} [.{} [.{} {old} {cat} ] {sat} ] ]"
    assert forest.splitlines()[1] == "[[{the}] [[[{old}] [{cat}]] [{sat}]]]"


def test_special_characters_of_latex_are_escaped():
    square, qtree, _ = written(InducedTree.from_spans(["$5", "50%", "a_b^c", "{x}\\y", "#&~", "]["], []))
    assert r"{\$5} {50\%} {a\_b\textasciicircum{}c} {\{x\}\textbackslash{}y} {\#\&\textasciitilde{}} {][}" in qtree
    assert "-RSB--LSB-" in square


def test_tables_are_quoted_like_python_csv_and_have_no_formulas():
    rows = [["word", "x"], ['say "no"', "a\tb"], ["=1+1", "+2"], ["-3", "@x"], ["line\nbreak", ""], ["plain", "it's"]]
    text = run_script("return exports.toTsv(data)", rows, exports="trees/exports.js")
    cells = list(csv.reader(io.StringIO(text, newline=""), dialect="excel-tab"))
    assert cells == [[f"'{cell}" if cell[:1] in ("=", "+", "-", "@") else cell for cell in row] for row in rows]
    numbers = run_script("return exports.toTsv([[-1.25, null, 0.00012345]])", exports="trees/exports.js")
    assert numbers.split() in (["-1.25", "0.0001234"], ["-1.25", "0.0001235"])


@pytest.mark.parametrize(
    "title, stem",
    [
        ("the company said", "the-company-said"),
        ('"; filename=x.exe\r\nSet-Cookie: a=b', "filename-x-exe-set-cookie-a-b"),
        ("../../etc/passwd", "etc-passwd"),
        ("\u202e\x00été 猫", "t"),
        ("猫", "sentence"),
        ("cat " * 80, "-".join(["cat"] * 15)),
    ],
)
def test_file_names_have_only_letters_digits_and_hyphens(title, stem):
    assert run_script("return exports.fileStem(data)", title, exports="trees/exports.js") == stem


def test_words_of_two_sentences_are_aligned_in_order():
    generator = random.Random(3)
    pairs = [[generator.choices("abcd", k=generator.randrange(8)) for _ in range(2)] for _ in range(300)]
    columns = run_script("return data.map(([a, b]) => alignment.align(a, b))", pairs, alignment="trees/alignment.js")
    for (first, second), aligned in zip(pairs, columns, strict=True):
        for side, words in enumerate((first, second)):
            assert [pair[side] for pair in aligned if pair[side] is not None] == list(range(len(words)))
        assert all(pair != [None, None] for pair in aligned)
    pair = ["the", "dogs", "saw", "it"], ["the", "old", "dog", "saw", "it"]
    columns = run_script("return alignment.align(...data)", pair, alignment="trees/alignment.js")
    assert columns == [[0, 0], [1, 1], [None, 2], [2, 3], [3, 4]]
