import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf import tree_from_distances
from onlstm_hf.trees.splits import Split, splits_of


def test_the_largest_distance_splits_first_before_and_after_its_word():
    tree = tree_from_distances([0.1, 0.2, 0.9, 0.4, 0.3], ["the", "cat", "sat", "on", "it"])
    assert splits_of(tree, "right") == {
        (0, 5): Split(1, 2),  # [the cat] [sat on it]
        (2, 5): Split(1, 2),  # [sat] [on it]
        (3, 5): Split(2, 3),
        (0, 2): Split(3, 1),
    }
    tree = tree_from_distances([0.8, 0.2, 0.9, 0.4, 0.3], ["the", "cat", "sat", "on", "it"], "none")
    assert splits_of(tree, "none") == {
        (0, 5): Split(1, 2),
        (2, 5): Split(2, 3),
        (3, 5): Split(3, 4),
        (0, 2): Split(4, 1),
    }


@pytest.mark.parametrize("bias", ["right", "none", "ranges"])
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), max_size=9))
def test_each_constituent_is_split_at_its_word_after_what_it_is_part_of(bias, distances):
    tree = tree_from_distances(distances, [str(index) for index in range(len(distances))], bias)
    splits = splits_of(tree, bias)
    spans = tree.spans()
    assert set(splits) == set(spans)
    assert {split.step for split in splits.values()} == set(range(1, 1 + len({s.word for s in splits.values()})))
    for start, end in spans:
        word = splits[start, end].word
        assert start <= word < end
        parts = {(start, word), (word, end)} if word > start else {(start + 1, end)}
        assert {part for part in parts if part[1] - part[0] > 1} <= set(spans)
        for inner_start, inner_end in spans:
            if start <= inner_start and inner_end <= end:
                assert splits[start, end].step <= splits[inner_start, inner_end].step
