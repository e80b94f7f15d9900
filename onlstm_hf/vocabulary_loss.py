"""Cross-entropy over a vocabulary without float32 copies of the logits."""

import torch

IGNORED_LABEL = -100
_NUMBERS_PER_BLOCK = 1 << 20


def next_token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor | None = None,
    shift_labels: torch.Tensor | None = None,
    num_items_in_batch: int | torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean cross-entropy of predicting the next token, in nats.

    Args:
        logits: `[B, T, V]`.
        labels: `[B, T]`, the tokens themselves: position `t` is compared with `t + 1`. -100 is ignored.
        shift_labels: `[B, T]`, labels that are shifted already; takes the place of `labels`.
        num_items_in_batch: divides the sum; by default the number of labels that are not ignored.

    Returns:
        A scalar in float32 (float64 for float64 logits); 0 where every label is ignored.
    """
    if shift_labels is None:
        logits, shift_labels = logits[:, :-1], labels[:, 1:]
    shift_labels = shift_labels.reshape(-1).to(logits.device)
    total = _SummedCrossEntropy.apply(logits.reshape(-1, logits.shape[-1]), shift_labels)
    if num_items_in_batch is None:
        num_items_in_batch = (shift_labels != IGNORED_LABEL).sum().clamp(min=1)
    return total / num_items_in_batch


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
