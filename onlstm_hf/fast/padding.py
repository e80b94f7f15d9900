"""Padding moved to where it can change nothing, and back."""

import torch


class Padding:
    """Moves padding to the end of every row, where nothing follows that it could change, and back again.

    Args:
        mask: `[B, T]` booleans, `False` at padding, or `None` where there is none.

    Attributes:
        given_mask: the mask as it was given.
        mask: the same with the padding at the end.
    """

    def __init__(self, mask: torch.Tensor | None):
        self.mask = self.given_mask = mask
        if mask is not None:
            num_real, num_padding = mask.cumsum(dim=1), mask.logical_not().cumsum(dim=1)
            self.newest = (num_real - 1).clamp(min=0)
            self.lengths = num_real[:, -1]
            # Where every entry goes, counted and not sorted: stable sorting is not known to every exporter.
            targets = torch.where(mask, num_real, self.lengths.unsqueeze(1) + num_padding) - 1
            places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
            self.order = torch.zeros_like(targets).scatter(1, targets, places)
            self.mask = mask.gather(1, self.order)

    def to_end(self, tensor: torch.Tensor) -> torch.Tensor:
        """`[B, T, ...]` with the padding at the end."""
        return tensor if self.mask is None else _taken(tensor, self.order)

    def back(self, tensor: torch.Tensor) -> torch.Tensor:
        """`[B, T, ...]` with every token's entry where it was; padding has that of the last real token before it.

        So the last position has what follows the row, whichever side the padding is on, as in layers that padding
        leaves as they are. Padding before the first real token has that token's entry.
        """
        return tensor if self.mask is None else _taken(tensor, self.newest)

    def back_or_zero(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same, with 0 at padding."""
        if self.mask is None:
            return tensor
        mask = self.given_mask.view(*self.given_mask.shape, *(1,) * (tensor.dim() - 2))
        return self.back(tensor) * mask

    def last(self, tape: torch.Tensor, size: int) -> torch.Tensor:
        """The last `size` real entries of each row of a tape `[B, size + T, ...]` that has its padding at the end."""
        if self.mask is None:
            return tape[:, tape.shape[1] - size :]
        return _taken(tape, self.lengths.unsqueeze(1) + torch.arange(size, device=tape.device))


def _taken(tensor: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Entries `[B, N, ...]` of `tensor` `[B, T, ...]` at `indices` `[B, N]`."""
    return tensor.gather(1, indices.view(*indices.shape, *(1,) * (tensor.dim() - 2)).expand(-1, -1, *tensor.shape[2:]))
