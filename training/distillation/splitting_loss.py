"""The loss of distances that should make a certain tree: how likely each of its constituents is split as it is there.

Parsing as a series of decisions where to split is from Nguyen, Nguyen, Joty & Li (ACL 2021, "A Conditional Splitting
Framework for Efficient Constituency Parsing"). Here the distances decide.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Split(NamedTuple):
    """One decision on the way from a sentence to its tree: the word with the largest distance splits a constituent.

    Attributes:
        start, end: the words whose distances are compared, up to but without `end`.
        right_start, right_end: those of them that make the tree if one of them has the largest distance, up to but
            without `right_end`.
    """

    start: int
    end: int
    right_start: int
    right_end: int


def splits_of_tree(distances: Sequence[float], branching_bias: str) -> list[Split]:
    """The decisions that make a tree, which is given by distances.

    Other distances make the same tree if, and only if, in each decision the word with the largest one is among those
    that are right. Where every word is right, there is nothing to decide.

    Args:
        distances: of the words, from which `tree_from_distances` makes the tree.
        branching_bias: the rule, `"right"` or `"none"`. By the papers' rule `"right"` two words may be right: the
            first one of a constituent and the one after it both make `[first, [second, rest]]`.
    """
    splits, unsplit = [], [(0, len(distances))]
    while unsplit:
        start, end = unsplit.pop()
        if end - start < 3:  # two words are one constituent, whichever has the larger distance
            continue
        if branching_bias == "none":
            word = max(range(start + 1, end), key=distances.__getitem__)
            split = Split(start + 1, end, word, word + 1)
            unsplit += (start, word), (word, end)
        else:
            word = max(range(start, end), key=distances.__getitem__)
            if word <= start + 1:  # the first word alone, whose sister is the next to be split
                in_sister = max(range(start + 1, end), key=distances.__getitem__)
                begins_with_word = in_sister <= start + 2  # by its first word or the one after it
                split = Split(start, end, start, start + 1 + begins_with_word)
                unsplit.append((start + 1, end))
            else:
                split = Split(start, end, word, word + 1)
                unsplit += (start, word), (word + 1, end)
        splits.append(split)
    return splits


def splitting_loss(distances: torch.Tensor, splits: torch.Tensor, temperature: float) -> torch.Tensor:
    """The mean negative log-probability of the right splits of each sentence.

    A word splits a constituent with the probability `softmax(distances / temperature)` over its words.

    Args:
        distances: `[B, num_words]`.
        splits: `[num_splits, 5]`, the row of each split and its fields.
        temperature: a difference of distances that changes the odds by a factor of e.

    Returns:
        `[B]`; 0 for a sentence without splits.
    """
    rows, (starts, ends, right_starts, right_ends) = splits[:, 0], splits[:, 1:, None].unbind(1)
    words = torch.arange(distances.shape[1], device=distances.device)
    logits = distances[rows] / temperature
    among_all = logits.masked_fill((words < starts) | (words >= ends), -torch.inf).logsumexp(1)
    among_right = logits.masked_fill((words < right_starts) | (words >= right_ends), -torch.inf).logsumexp(1)
    sums = distances.new_zeros(len(distances)).index_add(0, rows, among_all - among_right)
    return sums / rows.bincount(minlength=len(distances)).clamp(min=1)
