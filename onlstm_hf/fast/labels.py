"""Token ids and labels of language models, checked and shifted."""

import torch
from torch.nn import functional as F

IGNORED_LABEL = -100


def next_token_targets(
    labels: torch.Tensor | None,
    shift_labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    shape: tuple[int, int],
) -> torch.Tensor:
    """The token that should follow each position, -100 where none should.

    Args:
        labels: the tokens themselves; what follows padding or the last position becomes -100.
        shift_labels: labels that are shifted already; they are taken as they are, in the place of `labels`.
        attention_mask: 0 at padding.
        shape: `(batch_size, sequence_length)`, that of all of them.

    Raises:
        ValueError: if the labels are not of that shape.
    """
    for name, given in (("labels", labels), ("shift_labels", shift_labels)):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, one for each of the logits, not {list(given.shape)}")
    if shift_labels is not None:
        return shift_labels
    targets = F.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)
    return targets if attention_mask is None else targets.masked_fill(attention_mask == 0, IGNORED_LABEL)


def check_vocabulary(name: str, ids: torch.Tensor, vocab_size: int) -> None:
    """Refuses token ids outside the vocabulary, where looking is cheap: on the CPU, outside compiled code.

    Raises:
        ValueError: if an id is negative, or `vocab_size` or more.
    """
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.numel():
        raise ValueError(
            f"{name} hold the id {outside[0]}, which is outside the vocabulary of {vocab_size}: does the tokenizer "
            "belong to this model?"
        )
