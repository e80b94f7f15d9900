"""The ranking loss of distances of "Straight to the Tree" (Shen, Lin, Jacob, Sordoni, Courville & Bengio 2018)."""

import torch


def ranking_loss(distances: torch.Tensor, targets: torch.Tensor, margin: float = 1.0) -> torch.Tensor:
    """Ranking loss between the distances of each sentence and its target distances, whose order makes the tree.

    For each two words with different targets, `max(0, 1 - (d_i - d_j) / margin)` where `i` has the larger target; the
    mean over such pairs. (The paper has the sum, over distances that are not bounded, with `margin` 1.)

    Args:
        distances: `[B, T]`.
        targets: `[B, T]`, NaN where a position has none, as at padding.
        margin: the least difference that is asked for.

    Returns:
        `[B]`; 0 for a sentence without such a pair.
    """
    is_larger = targets.unsqueeze(2) > targets.unsqueeze(1)  # never where one of them is NaN
    differences = distances.unsqueeze(2) - distances.unsqueeze(1)
    hinges = (1 - differences / margin).relu() * is_larger
    return hinges.sum(dim=(1, 2)) / is_larger.sum(dim=(1, 2)).clamp(min=1)
