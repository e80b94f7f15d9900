"""Loss that trains distances to yield a given tree: negative log-probability of its splits.

Nguyen, Nguyen, Joty & Li (ACL 2021), "A Conditional Splitting Framework for Efficient Constituency Parsing", treat
parsing as a sequence of split decisions. Here the distances decide.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Split(NamedTuple):
    """Split decision: the word from `start` to `end` (exclusive) with the largest distance splits a constituent.

    It is split as in the tree if this word is in the range of correct words.
    """

    start: int
    end: int
    right_start: int
    right_end: int


def splits_of_tree(distances: Sequence[float], branching_bias: str) -> list[Split]:
    """Returns the split decisions with which `tree_from_distances` builds the tree by a rule.

    Other distances yield the same tree if and only if the word with the largest distance is correct in each decision.
    With the papers' rule `"right"` two words can be correct: a split at the first or the second word of a constituent
    yields `[first, [second, rest]]`.
    """
    splits, unsplit = [], [(0, len(distances))]
    while unsplit:
        start, end = unsplit.pop()
        if end - start < 3:  # two words form one constituent with any distances
            continue
        if branching_bias == "none":
            word = max(range(start + 1, end), key=distances.__getitem__)
            split = Split(start + 1, end, word, word + 1)
            unsplit += (start, word), (word, end)
        else:
            word = max(range(start, end), key=distances.__getitem__)
            if word <= start + 1:  # the first word is separated, then its sister is split
                in_sister = max(range(start + 1, end), key=distances.__getitem__)
                second_is_correct = in_sister <= start + 2  # the sister is split after its first word
                split = Split(start, end, start, start + 1 + second_is_correct)
                unsplit.append((start + 1, end))
            else:
                split = Split(start, end, word, word + 1)
                unsplit += (start, word), (word + 1, end)
        splits.append(split)
    return splits


def splitting_loss(distances: torch.Tensor, splits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns the mean negative log-probability of the correct splits of each sentence, `[B]`; 0 without splits.

    A word splits a constituent with the probability `softmax(distances / temperature)` over its words.

    Args:
        distances: `[B, num_words]`.
        splits: `[num_splits, 5]`, batch row and fields of each split.
    """
    rows, (starts, ends, right_starts, right_ends) = splits[:, 0], splits[:, 1:, None].unbind(1)
    words = torch.arange(distances.shape[1], device=distances.device)
    logits = distances[rows] / temperature
    among_all = logits.masked_fill((words < starts) | (words >= ends), -torch.inf).logsumexp(1)
    among_right = logits.masked_fill((words < right_starts) | (words >= right_ends), -torch.inf).logsumexp(1)
    sums = distances.new_zeros(len(distances)).index_add(0, rows, among_all - among_right)
    return sums / rows.bincount(minlength=len(distances)).clamp(min=1)
