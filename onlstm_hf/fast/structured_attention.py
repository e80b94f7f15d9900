"""The attention of the PRPN, whose softmax is weighted by how far each slot is open.

Shen, Lin, Huang & Courville (ICLR 2018), section 4.2. With `B` rows, `T` steps, `S` slots and `H` units.
"""

import math

import torch

ATTENTION_EPSILON = 1e-8
STEPS_PER_BLOCK = 64


def attend(scores: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Structured attention: a softmax over the slots whose terms are weighted by the gates.

    Args:
        scores: `[..., S]`, key times memory.
        gates: `[..., S]`, in [0, 1], how far each slot is open.
    """
    gated = softmax_terms(scores) * gates
    return gated / (gated.sum(dim=-1, keepdim=True) + ATTENTION_EPSILON)


def softmax_terms(scores: torch.Tensor) -> torch.Tensor:
    """The terms of the softmax, divided by the largest one.

    In an ordinary softmax the division cancels. Here `ATTENTION_EPSILON` is added to the sum of the terms, so that it
    does not cancel where the gates are all but closed: then the gradient goes through the largest score, too.
    """
    return (scores - scores.amax(dim=-1, keepdim=True)).exp()


def attend_to_windows(
    keys: torch.Tensor, tape: torch.Tensor, gates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of every step to the memories of its window, for steps whose keys do not wait for each other.

    Args:
        keys: `[B, T, H]`.
        tape: `[B, S + T, H]`, whose last memory no step looks at, or `[B, S + T - 1, H]` without that one.
        gates: `[B, T, S]`, oldest memory first.

    Returns:
        The summaries `[B, T, H]`, and the attentions `[B, T, S]`.
    """
    num_slots, length = gates.shape[-1], keys.shape[1]
    if not isinstance(length, int):
        # A compiler's symbol for the length: the number of blocks would have to be known.
        return _attend_in_block(keys, tape[:, : length + num_slots - 1], gates)
    # Cutting the windows out of the tape would be slower than computing the scores of all pairs of a step and a memory
    # in a block of steps, of which only a band is used.
    blocks = []
    for start in range(0, length, STEPS_PER_BLOCK):
        steps = slice(start, min(start + STEPS_PER_BLOCK, length))
        memories = tape[:, start : steps.stop + num_slots - 1]
        blocks.append(_attend_in_block(keys[:, steps], memories, gates[:, steps]))
    summaries, attentions = zip(*blocks, strict=True)
    return torch.cat(summaries, dim=1), torch.cat(attentions, dim=1)


def _attend_in_block(
    keys: torch.Tensor, memories: torch.Tensor, gates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for `T` steps and all their memories, `[B, S + T - 1, H]`."""
    band = torch.arange(gates.shape[-1], device=keys.device) + torch.arange(keys.shape[1], device=keys.device)[:, None]
    band = band.expand(keys.shape[0], -1, -1)
    scores = torch.bmm(keys, memories.transpose(1, 2)).gather(2, band) / math.sqrt(keys.shape[-1])
    attention = attend(scores.to(gates.dtype), gates)
    weights = attention.new_zeros(*attention.shape[:2], memories.shape[1]).scatter(2, band, attention)
    return torch.bmm(weights, memories), attention
