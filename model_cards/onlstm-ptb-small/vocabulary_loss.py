"""Cross-entropy over a vocabulary without float32 copies of the logits."""

import torch
from torch.nn import functional as F

IGNORED_LABEL = -100
_NUMBERS_PER_BLOCK = 1 << 20


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


def next_token_loss(
    logits: torch.Tensor, shift_labels: torch.Tensor, num_items_in_batch: int | torch.Tensor | None = None
) -> torch.Tensor:
    """Mean cross-entropy of predicting the next token, in nats.

    Args:
        logits: `[B, T, V]`.
        shift_labels: `[B, T]`, the token that should follow each position; -100 is ignored.
        num_items_in_batch: divides the sum; by default the number of labels that are not ignored.

    Returns:
        A scalar in float32 (float64 for float64 logits); 0 where every label is ignored.

    Raises:
        ValueError: if a label is outside the vocabulary.
    """
    check_vocabulary("labels", shift_labels.where(shift_labels != IGNORED_LABEL, 0), logits.shape[-1])
    shift_labels = shift_labels.reshape(-1).to(logits.device)
    total = _SummedCrossEntropy.apply(logits.reshape(-1, logits.shape[-1]), shift_labels)
    if num_items_in_batch is None:
        num_items_in_batch = (shift_labels != IGNORED_LABEL).sum().clamp(min=1)
    return total / num_items_in_batch


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


class _SummedCrossEntropy(torch.autograd.Function):
    """Sum of `logsumexp(logits) - logits[label]`, block of rows by block, so that the float32 copies stay in cache."""

    @staticmethod
    def forward(ctx, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        real = labels != IGNORED_LABEL
        targets = labels.where(real, 0).unsqueeze(-1)
        normalizers = torch.empty(len(logits), dtype=dtype, device=logits.device)
        for rows in _blocks(logits):
            torch.logsumexp(logits[rows].to(dtype), dim=-1, out=normalizers[rows])
        losses = normalizers - logits.gather(-1, targets).squeeze(-1).to(dtype)
        ctx.save_for_backward(logits, targets, real, normalizers)
        return losses.where(real, 0).sum()

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor):
        logits, targets, real, normalizers = ctx.saved_tensors
        scale = (real * grad_output).unsqueeze(-1)
        grad_logits = torch.empty_like(logits)
        for rows in _blocks(logits):
            log_probabilities = logits[rows] - normalizers[rows].unsqueeze(-1)
            grad_block = log_probabilities.exp_().mul_(scale[rows])
            grad_logits[rows] = grad_block.scatter_add_(-1, targets[rows], -scale[rows])
        return grad_logits, None


def _blocks(logits: torch.Tensor) -> list[slice]:
    size = max(1, _NUMBERS_PER_BLOCK // logits.shape[-1])
    return [slice(start, start + size) for start in range(0, len(logits), size)]
