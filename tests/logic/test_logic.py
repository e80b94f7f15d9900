"""Formulas and their relations, compared with brute force and the data of Bowman et al. (2015)."""

from collections import Counter
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf import generate_logic_pairs, logical_relation
from onlstm_hf.logic.formulas import RELATIONS, VARIABLES, LogicPair, split_by_operators
from onlstm_hf.logic.pairs import build_logic_dataset, read_logic_dataset, read_logic_files
from tests.helpers.requirements import library


def join(left, operator, right):
    return f"( {left} ( {operator} {right} ) )"


formulas = st.recursive(
    st.sampled_from(VARIABLES),
    lambda inner: st.one_of(
        inner.map("( not {} )".format), st.builds(join, inner, st.sampled_from(["and", "or"]), inner)
    ),
    max_leaves=8,
)


def true_worlds(formula):
    """Evaluates a formula in all worlds as a Python expression."""
    worlds = product([False, True], repeat=len(VARIABLES))
    expression = formula.replace("( and ", "and (").replace("( or ", "or (")
    code = compile(expression, "formula", "eval")
    return [bool(eval(code, {}, dict(zip(VARIABLES, world, strict=True)))) for world in worlds]


def is_contingent(formula):
    return len(set(true_worlds(formula))) == 2


@pytest.fixture(scope="module")
def reference(shared_dir):
    return read_logic_files(shared_dir / "data" / "logic")


@given(formulas, formulas)
def test_relation_equals_that_of_the_truth_tables(left, right):
    pairs = set(zip(true_worlds(left), true_worlds(right), strict=True))
    both, neither = (True, True) in pairs, (False, False) in pairs
    only_left, only_right = (True, False) in pairs, (False, True) in pairs
    relation = logical_relation(left, right)
    assert relation in RELATIONS
    if not (is_contingent(left) and is_contingent(right)):
        assert relation == "#"
    elif not only_left and not only_right:
        assert relation == "="
    elif not only_left or not only_right:
        assert relation == ("<" if only_right else ">")
    elif not both:
        assert relation == ("|" if neither else "^")
    else:
        assert relation == ("#" if neither else "v")


MALFORMED = {
    **{"": 0, "   ": 0, "g": 0, "( a ( xor b ) )": 6, "( a ( and b )": 0, "a b": 2, "( a )": 4, "( ( a ) )": 6},
    **{"( a and b )": 10, "( and b )": 0, "( not a": 0, "( not and )": 10, ")": 0, "a )": 2, "( ( and a ) b )": 14},
    **{"( not a ) )": 10},
}


@pytest.mark.parametrize(("formula", "position"), MALFORMED.items())
def test_malformed_formulas_are_refused_with_the_position(formula, position):
    with pytest.raises(ValueError, match=f"malformed formula .* at character {position}:"):
        logical_relation(formula, "a")


def test_formulas_may_be_nested_very_deeply():
    assert logical_relation("( not " * 20_000 + "a" + " )" * 20_000, "a") == "="


@pytest.mark.slow
def test_relations_of_all_reference_pairs_are_reproduced(reference):
    pairs = [pair for split in reference.values() for pair in split]
    assert len(pairs) == 249_069
    wrong = [pair for pair in pairs if logical_relation(pair.left, pair.right) != pair.relation]
    assert not wrong
    numbers = {name: {min(pair.num_operators, 12) for pair in pairs} for name, pairs in reference.items()}
    assert numbers == {f"{part}{number}": {number} for part in ("train", "test") for number in range(13)}


def test_operators_of_the_longer_formula_are_counted():
    assert LogicPair("#", "a", "( not ( not b ) )").num_operators == 2
    assert LogicPair("#", "((not a) (or (not b)))", "( ( not a ) ( or b ) )").num_operators == 3


def test_generated_pairs_are_distinct_and_valid():
    pairs = list(generate_logic_pairs(3000, seed=1))
    assert len(set(pairs)) == 3000
    for pair in pairs:
        assert pair.relation == logical_relation(pair.left, pair.right)
        assert len({token for token in f"{pair.left} {pair.right}".split() if token in VARIABLES}) <= 4
        assert is_contingent(pair.left) and is_contingent(pair.right)


def test_pairs_are_seeded_and_more_pairs_only_append():
    pairs = list(generate_logic_pairs(200, seed=7))
    assert pairs == list(islice(generate_logic_pairs(500, seed=7), 200))
    assert pairs != list(generate_logic_pairs(200, seed=8))


def test_pairs_of_few_operators_run_out_with_an_error():
    assert {pair.num_operators for pair in generate_logic_pairs(1000, max_operators=2)} <= {0, 1, 2}
    assert len(list(generate_logic_pairs(36, max_operators=0))) == 36
    with pytest.raises(ValueError, match="only 36 pairs of at most 0 operators, not 37"):
        list(generate_logic_pairs(37, max_operators=0))


def test_generated_pairs_are_distributed_like_the_reference_pairs(reference):
    def count_operators(formula):
        return sum(token in ("not", "and", "or") for token in formula.split())

    # Only long pairs: the data have nearly all short pairs, so their fraction depends on the number of pairs.
    def shares(pairs, describe):
        counts = Counter(describe(pair) for pair in pairs)
        return {key: count / len(pairs) for key, count in counts.items()}

    def long(pairs):
        return [pair for pair in pairs if min(map(count_operators, pair[1:])) >= 3]

    expected = long([pair for split in reference.values() for pair in split])
    generated = long(generate_logic_pairs(15_000, seed=3))
    for describe in (
        lambda pair: pair.relation,
        lambda pair: count_operators(pair.left),
        lambda pair: count_operators(pair.right),
        lambda pair: pair.right[:6] == "( not ",
        lambda pair: pair.left.count("or") - pair.left.count("and"),
        lambda pair: len(set(pair.left + pair.right) & set("abcdef")),
    ):
        got, wanted = shares(generated, describe), shares(expected, describe)
        for key in got.keys() | wanted.keys():
            assert got.get(key, 0) == pytest.approx(wanted.get(key, 0), abs=0.035), key


def test_splits_equal_those_of_the_reference_files(reference):
    pairs = [pair for name in reference for pair in reference[name][:20]]
    splits = split_by_operators(pairs)
    assert list(splits) == list(reference)
    assert sorted(pair for split in splits.values() for pair in split) == sorted(pairs)
    for number in range(13):
        sizes = len(reference[f"train{number}"]), len(reference[f"test{number}"])
        assert sizes[0] == int(0.85 * sum(sizes))
        assert not set(splits[f"train{number}"]) & set(splits[f"test{number}"])


def test_dataset_round_trips(tmp_path):
    datasets = library("datasets")
    splits = split_by_operators(generate_logic_pairs(500, seed=2))
    build_logic_dataset(splits).save_to_disk(tmp_path / "pairs")
    dataset = datasets.load_from_disk(tmp_path / "pairs")
    row, pair = dataset["train4"][0], splits["train4"][0]
    assert (row["left"], row["right"], row["num_operators"]) == (pair.left, pair.right, 4)
    assert dataset["train4"].features["label"].int2str(row["label"]) == pair.relation
    assert read_logic_dataset(dataset) == splits


def test_invalid_datasets_are_refused():
    datasets = library("datasets")
    rows = datasets.Dataset.from_dict({"left": ["a"], "right": ["b"]})
    with pytest.raises(ValueError, match="none of the splits"):
        read_logic_dataset(datasets.DatasetDict({"train": rows}))
    for wrong in (rows, rows.add_column("label", [0])):
        with pytest.raises(ValueError, match="train1 must have the columns left, right and label, a ClassLabel"):
            read_logic_dataset(datasets.DatasetDict({"train1": wrong}))


def test_bad_lines_are_reported_with_their_position(tmp_path):
    with pytest.raises(FileNotFoundError, match="train0"):
        read_logic_files(tmp_path)
    for name in [f"{part}{number}" for part in ("train", "test") for number in range(13)]:
        (tmp_path / name).write_text("=\ta\ta\n")
    (tmp_path / "train2").write_text("=\ta\ta\n?\ta\tb\n")
    with pytest.raises(ValueError, match="train2, line 2: expected"):
        read_logic_files(tmp_path)
