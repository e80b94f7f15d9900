"""Scores of logical inference, compared with direct counts."""

import json
from random import Random

import pytest

from onlstm_hf.logic.formulas import RELATIONS
from onlstm_hf.logic.scores import score_logic


@pytest.fixture(scope="module")
def columns():
    generator = Random(0)
    references = generator.choices(RELATIONS[:6], k=400)
    predictions = [gold if generator.random() < 0.6 else generator.choice(RELATIONS) for gold in references]
    return predictions, references, generator.choices(range(13), k=400)


def share(columns, keep):
    """Returns the accuracy on the pairs selected by `keep(gold, number)`."""
    rows = [row for row in zip(*columns, strict=True) if keep(*row[1:])]
    return sum(predicted == gold for predicted, gold, _ in rows) / len(rows)


def test_accuracies_of_all_groups(columns):
    scores = score_logic(*columns)
    assert json.loads(json.dumps(scores)) == scores
    assert scores["num_pairs"] == 400
    assert scores["accuracy"] == pytest.approx(share(columns, lambda gold, number: True))
    assert list(scores["by_operators"]) == list(map(str, range(13)))
    for wanted, group in scores["by_operators"].items():
        assert group["accuracy"] == pytest.approx(
            share(columns, lambda _, number, wanted=wanted: str(number) == wanted)
        )
    by_relation = [share(columns, lambda gold, number, wanted=wanted: gold == wanted) for wanted in RELATIONS[:6]]
    assert [group["accuracy"] for group in scores["by_relation"].values()] == pytest.approx(by_relation)
    assert scores["macro_accuracy"] == pytest.approx(sum(by_relation) / 6)


def test_confusion_counts_the_pairs(columns):
    predictions, references, _ = columns
    pairs = list(zip(references, predictions, strict=True))
    confusion = score_logic(*columns)["confusion"]
    assert confusion == {gold: {value: pairs.count((gold, value)) for value in RELATIONS} for gold in RELATIONS}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([], [], []), "there are no pairs"),
        ((["<"], ["<", ">"], [1, 1]), "zip"),
        ((["<"], [">"], []), "zip"),
        ((["<", "?"], ["<", ">"], [1, 1]), r"prediction 1 must be one of .*, not '\?'"),
        ((["<"], [5], [1]), "reference 0 must be one of .*, not 5"),
        ((["<"], [">"], [-1]), "integers of at least 0"),
        ((["<"], [">"], [1.5]), "integers of at least 0"),
    ],
)
def test_invalid_columns_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        score_logic(*columns)
