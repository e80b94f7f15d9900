import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.logic.listops import (
    OPERATIONS,
    VALUES,
    build_listops_dataset,
    generate_listops,
    read_expression,
    read_listops_file,
)
from tests.helpers.requirements import library

# An expression as nested lists: a digit, or an operation with its arguments.
NESTED = st.recursive(
    st.integers(0, 9),
    lambda arguments: st.tuples(st.sampled_from(["MAX", "MIN", "MED", "SM"]), st.lists(arguments, min_size=1)),
    max_leaves=20,
)


def text_of(nested) -> str:
    if isinstance(nested, int):
        return str(nested)
    operation, arguments = nested
    return f"[{operation} {' '.join(map(text_of, arguments))} ]"


def value_of(nested) -> int:
    if isinstance(nested, int):
        return nested
    operation, arguments = nested
    values = sorted(map(value_of, arguments))
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
    return {"MAX": values[-1], "MIN": values[0], "SM": sum(values) % 10, "MED": middle}[operation]


def depth_of(nested) -> int:
    return 0 if isinstance(nested, int) else 1 + max(map(depth_of, nested[1]))


def binary_tree_of(nested):
    """Returns the tree that is left-branching within each list, as nested lists of two."""
    if isinstance(nested, int):
        return str(nested)
    operation, arguments = nested
    tree = f"[{operation}"
    for argument in [*map(binary_tree_of, arguments), "]"]:
        tree = [tree, argument]
    return tree


@given(NESTED)
def test_value_depth_and_trees_equal_those_of_the_nested_lists(nested):
    expression = read_expression(text_of(nested))
    assert expression.value == value_of(nested)
    assert expression.depth == depth_of(nested)
    binary = expression.gold_tree()
    assert binary.to_nested() == binary_tree_of(nested)
    assert expression.brackets.split() == _brackets(binary_tree_of(nested)).split()
    assert read_expression(expression.brackets) == expression
    assert {label for label, _, _ in expression.gold_tree(binary=False).constituents} <= {"LIST"}


def _brackets(tree) -> str:
    return tree if isinstance(tree, str) else f"( {_brackets(tree[0])} {_brackets(tree[1])} )"


def test_example_of_the_paper():
    expression = read_expression("[MAX 2 9 [MIN 4 7 ] 0 ]")
    assert (expression.value, expression.depth) == (9, 2)
    assert expression.lists == ((3, 7), (0, 9))
    assert expression.gold_tree(binary=False).to_nested() == ["[MAX", "2", "9", ["[MIN", "4", "7", "]"], "0", "]"]
    assert expression.gold_tree().to_nested()[0][0][1] == [[["[MIN", "4"], "7"], "]"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("[MAX 1 2", "it has 1 unclosed lists"),
        ("[MAX ]", "token 2, ']'"),
        ("]", "token 1, ']'"),
        ("1 2", "token 2, '2', comes after the end"),
        ("[MAX 1 ] ]", "token 4, ']', comes after the end"),
        ("[MAX 10 ]", "token 2, '10'"),
        ("[AVG 1 2 ]", "token 1, '[AVG'"),
    ],
)
def test_invalid_expressions_are_refused_with_the_token(text, problem):
    with pytest.raises(ValueError, match=problem.replace("[", r"\[").replace("]", r"\]")):
        read_expression(text)


def test_generated_expressions_are_distinct_reproducible_and_like_the_authors():
    expressions = list(generate_listops(4000, seed=3))
    assert expressions == list(generate_listops(4000, seed=3))
    assert expressions[:50] != list(generate_listops(50, seed=4))
    assert len(set(expressions)) == 4000
    tokens = {token for expression in expressions for token in expression.tokens}
    assert tokens == {*OPERATIONS, *VALUES, "]"}
    assert 15 <= max(expression.depth for expression in expressions) <= 19
    lists = sum(len(expression.lists) for expression in expressions)
    arguments = sum(len(expression.parts) for expression in expressions)
    assert 3.2 < arguments / lists < 3.8  # lists have 2 to 5 arguments


def test_expressions_respect_max_length_and_run_out_with_an_error():
    assert max(len(expression.tokens) for expression in generate_listops(500, max_length=12)) <= 12
    with pytest.raises(ValueError, match="only 10 such expressions, not 11"):
        list(generate_listops(11, max_length=1))


def test_files_of_the_authors_are_read_and_checked(tmp_path):
    path = tmp_path / "train_d20s.tsv"
    path.write_text("9\t( ( ( [MAX 2 ) 9 ) ] )\n4\t4\n")
    assert [" ".join(expression.tokens) for expression in read_listops_file(path)] == ["[MAX 2 9 ]", "4"]
    path.write_text("4\t4\n8\t( ( ( [MAX 2 ) 9 ) ] )\n")
    with pytest.raises(ValueError, match="line 2: the expression has the value 9, not '8'"):
        read_listops_file(path)
    path.write_text("4\t4\n8\t[MAX\n")
    with pytest.raises(ValueError, match="line 2: it has 1 unclosed lists"):
        read_listops_file(path)


def test_dataset_has_all_expressions_with_value_and_tree():
    library("datasets")
    expressions = list(generate_listops(30, seed=2))
    dataset = build_listops_dataset({"train": expressions[:20], "test": expressions[20:]})
    rows = [*dataset["train"], *dataset["test"]]
    assert [read_expression(row["brackets"]) for row in rows] == expressions
    for row, expression in zip(rows, expressions, strict=True):
        assert read_expression(row["text"]) == expression
        assert dataset["train"].features["label"].int2str(row["label"]) == str(expression.value)
        assert (row["depth"], row["num_tokens"]) == (expression.depth, len(expression.tokens))
