import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.scoring.agreement import mean_agreement, tree_agreement
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.induced_tree import InducedTree
from tests.helpers.random_trees import as_gold, drawn_trees, numbered


@st.composite
def parsers(draw):
    """Draws binary and flat trees of two to four parsers for the same one to four sentences."""
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    trees = st.tuples(*(drawn_trees(numbered(length)) for length in lengths)).map(list)
    return draw(st.lists(trees, min_size=2, max_size=4))


@given(parsers())
def test_agreement_is_the_f1_with_the_other_parser_as_gold(given_parsers):
    agreement = tree_agreement(given_parsers)
    for row, predicted in enumerate(given_parsers):
        for column, gold in enumerate(given_parsers):
            expected = score_parses(predicted, list(map(as_gold, gold)), num_resamples=0).sentence_f1
            assert agreement[row, column] == pytest.approx(expected, abs=1e-9)


def test_different_sentences_are_refused():
    first, second = InducedTree.from_bracket("((a b) c)"), InducedTree.from_bracket("((a b) d)")
    with pytest.raises(ValueError, match="sentence 1 have different words"):
        tree_agreement([[first, first], [first, second]])
    for parsers, message in (([[first], [first, first]], "zip"), ([[], []], "at least one sentence")):
        with pytest.raises(ValueError, match=message):
            tree_agreement(parsers)


def test_mean_agreement_excludes_the_parser_itself():
    agreement = np.array([[1.0, 0.2, 0.6], [0.2, 1.0, 0.4], [0.6, 0.4, 1.0]])
    assert mean_agreement(agreement) == pytest.approx([0.4, 0.3, 0.5])
