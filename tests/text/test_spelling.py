import pytest

from onlstm_hf.text.spelling import spell_as_treebank


@pytest.mark.parametrize(
    "sentence, expected",
    [
        ("It’s true: they don’t.", "it 's true they do n't"),
        ("It's true: they don't.", "it 's true they do n't"),
        ("the “old” cat…", "the old cat"),
        ("5% of 1.2 billion", "N N of N billion"),
    ],
)
def test_curly_apostrophes_count_as_straight_ones_and_numbers_are_n(sentence, expected):
    assert spell_as_treebank(sentence) == expected


def test_signs_are_dropped_unless_they_are_asked_for():
    assert spell_as_treebank("$1.2 billion & more #") == "N billion more"
    assert spell_as_treebank("$1.2 billion & more #", symbols=["$", "&"]) == "$ N billion & more"
