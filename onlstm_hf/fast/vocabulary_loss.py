"""Cross-entropy over a vocabulary without all logits in memory."""

import torch
from torch.autograd.function import once_differentiable

from .linear import linear, matmul

IGNORED_LABEL = -100
# Each block of logits reads and writes the whole gradient of the weight, so a block has at least half its size.
_BYTES_PER_PRODUCT = 1 << 23
# On a GPU blocks are larger, as it has the memory and waits for Python between blocks.
_BYTES_PER_PRODUCT_ON_GPU = 1 << 26


def projected_next_token_loss(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    shift_labels: torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None = None,
    log_priors: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns the mean cross-entropy of `logits = hidden_states @ weight.T + bias`, computed in blocks.

    With `log_priors` it is that of a mixture: a token's probability is the sum of its probabilities in the softmax of
    each component, weighted by the priors.

    The gradients are computed with the loss, block by block, and only scaled in the backward pass. So nothing is
    computed twice or kept at the size of the logits (as in the Liger kernels of Hsu et al. 2024). On a CPU, positions
    without a label, such as padding, take no time.

    Args:
        hidden_states: `[B, T, H]`, and `[B, T, K, H]` for a mixture of `K` components.
        weight, bias: `[V, H]` and `[V]`. Under autocast the products are in autocast's dtype.
        shift_labels: `[B, T]`, the next token of each position, below `V`; -100 is ignored.
        num_items_in_batch: divides the sum; by default the number of labels that are not ignored.
        log_priors: `[B, T, K]`, natural logarithms of the weights of a mixture.
    """
    labels = shift_labels.reshape(-1).to(hidden_states.device)
    if log_priors is None:  # a mixture of one component
        hidden_states, log_priors = hidden_states.unsqueeze(-2), hidden_states.new_zeros(()).expand(*labels.shape, 1)
    num_items, hidden_states, log_priors = num_items_in_batch, hidden_states.flatten(0, -3), log_priors.flatten(0, -2)
    if num_items is None:
        num_items = (labels != IGNORED_LABEL).sum()
    device_type = hidden_states.device.type
    if device_type == "cpu" and not torch.compiler.is_compiling():  # a GPU would wait for the number of rows
        labelled = (labels != IGNORED_LABEL).nonzero().squeeze(-1)
        if len(labelled) < len(labels):
            hidden_states, log_priors = hidden_states.index_select(0, labelled), log_priors.index_select(0, labelled)
            labels = labels[labelled]
    autocast = torch.is_autocast_enabled(device_type)
    dtype = torch.get_autocast_dtype(device_type) if autocast else hidden_states.dtype
    with torch.autocast(device_type, enabled=False):
        return _ProjectedCrossEntropy.apply(
            hidden_states.to(dtype), log_priors, weight, bias, labels, num_items, torch.is_grad_enabled()
        )


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Computes the mean cross-entropy, and in the same pass its gradients.

    `hidden_states` are `[N, K, H]` and `log_priors` `[N, K]`. The gradient of a component's cross-entropy is its
    responsibility for the label: its share of the label's probability, which is 1 for a single component.
    """

    @staticmethod
    def forward(
        ctx,
        hidden_states: torch.Tensor,
        log_priors: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        labels: torch.Tensor,
        num_items: int | torch.Tensor,
        differentiate: bool,
    ) -> torch.Tensor:
        dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        num_components = hidden_states.shape[1]
        real = (labels != IGNORED_LABEL).unsqueeze(-1)
        targets = labels.unsqueeze(-1).where(real, 0).expand(-1, num_components).unsqueeze(-1)
        product_weight, product_bias = weight.to(hidden_states.dtype), bias.to(hidden_states.dtype)
        grad_hidden, grad_priors = torch.empty_like(hidden_states), torch.empty_like(log_priors, dtype=dtype)
        grad_weight, grad_bias = torch.zeros_like(weight, dtype=dtype), torch.zeros_like(bias, dtype=dtype)
        total = torch.zeros((), dtype=dtype, device=hidden_states.device)
        num_bytes = _BYTES_PER_PRODUCT if hidden_states.device.type == "cpu" else _BYTES_PER_PRODUCT_ON_GPU
        logits_per_block = max(num_bytes // hidden_states.element_size(), grad_weight.numel() // 2)
        num_blocks = max(1, -(-len(hidden_states) // max(1, logits_per_block // (num_components * len(weight)))))
        block_size = -(-len(hidden_states) // num_blocks)
        minus_one = total.new_full((), -1.0)
        for block in range(num_blocks):  # not over rows, as compiled code is specialised to the arguments of `range`
            rows = slice(block * block_size, (block + 1) * block_size)
            inputs = hidden_states[rows].flatten(0, 1)
            log_probabilities = linear(inputs, product_weight, product_bias).log_softmax(-1, dtype=dtype)
            log_probabilities = log_probabilities.unflatten(0, (-1, num_components))
            joint = log_probabilities.gather(-1, targets[rows]).squeeze(-1) + log_priors[rows]
            log_likelihood = joint.logsumexp(-1, keepdim=True)
            total -= log_likelihood.where(real[rows], 0).sum()
            if differentiate:
                responsibilities = (joint - log_likelihood).exp() * real[rows]
                grad_priors[rows] = -responsibilities
                # The gradient of the sum, unlike that of the mean, is large enough for half precision.
                grad_logits = log_probabilities.exp_()
                grad_logits.scatter_add_(-1, targets[rows], minus_one.expand_as(targets[rows]))
                grad_logits = grad_logits.mul_(responsibilities.unsqueeze(-1)).flatten(0, 1)
                grad_bias += grad_logits.sum(dim=0)
                grad_logits = grad_logits.to(hidden_states.dtype)
                grad_hidden[rows] = matmul(grad_logits, product_weight).view_as(hidden_states[rows])
                if grad_weight.dtype == hidden_states.dtype:
                    grad_weight.addmm_(grad_logits.t(), inputs)
                else:
                    grad_weight += grad_logits.t() @ inputs
            log_probabilities = grad_logits = None  # frees memory for the next block
        num_items = torch.as_tensor(num_items)
        divisor = num_items.where(num_items != 0, 1)  # a mean without labels is NaN, but its gradient is 0
        if differentiate:
            grad_weight /= divisor
            grad_bias /= divisor
        ctx.save_for_backward(grad_hidden, grad_priors, grad_weight, grad_bias, divisor)
        ctx.weight_dtype = weight.dtype
        return total / num_items

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output: torch.Tensor):
        grad_hidden, grad_priors, grad_weight, grad_bias, divisor = ctx.saved_tensors
        grad_hidden, grad_priors = (grad * (grad_output / divisor) for grad in (grad_hidden, grad_priors))
        # `loss.backward()` has the factor 1, which saves a copy of the weight's gradient. A GPU would have to wait.
        if grad_output.device.type != "cpu" or torch.compiler.is_compiling() or grad_output != 1:
            grad_weight, grad_bias = grad_weight * grad_output, grad_bias * grad_output
        grad_weight, grad_bias = grad_weight.to(ctx.weight_dtype), grad_bias.to(ctx.weight_dtype)
        return grad_hidden, grad_priors, grad_weight, grad_bias, None, None, None
