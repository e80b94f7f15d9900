import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from onlstm_hf.fast import vocabulary_loss
from onlstm_hf.fast.vocabulary_loss import projected_next_token_loss
from onlstm_hf.models.heads import IGNORED_LABEL, next_token_loss, next_token_targets

VOCAB_SIZE = 11


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest computed tensor."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.fixture(params=["one block", "many blocks"])
def block_size(request, monkeypatch):
    """Runs each test with one block of rows and with blocks of two rows; results must not change."""
    if request.param == "many blocks":
        monkeypatch.setattr(vocabulary_loss, "_BYTES_PER_PRODUCT", 8 * VOCAB_SIZE)


@pytest.fixture
def logits() -> torch.Tensor:
    torch.manual_seed(0)
    return (3 * torch.randn(3, 5, VOCAB_SIZE)).requires_grad_()


@pytest.fixture
def labels() -> torch.Tensor:
    torch.manual_seed(1)
    labels = torch.randint(VOCAB_SIZE, (3, 5))
    labels[0, 1:3] = labels[2, 4] = IGNORED_LABEL
    return labels


def flat_cross_entropy(logits, shifted_labels, reduction="mean"):
    return F.cross_entropy(logits.flatten(0, 1), shifted_labels.flatten(), reduction=reduction)


def assert_same_loss_and_gradient(loss, expected, logits, rtol=1e-5, atol=1e-6):
    torch.testing.assert_close(loss, expected, rtol=rtol, atol=atol)
    torch.testing.assert_close(
        *(torch.autograd.grad(3 * value, logits)[0] for value in (loss, expected)), rtol=rtol, atol=atol
    )


def test_the_loss_is_the_mean_cross_entropy_without_ignored_labels(logits, labels):
    assert_same_loss_and_gradient(next_token_loss(logits, labels), flat_cross_entropy(logits, labels), logits)


@pytest.mark.parametrize("num_items", [7, torch.tensor(7)])
def test_num_items_in_batch_divides_the_sum(logits, labels, num_items):
    expected = flat_cross_entropy(logits, labels, "sum") / 7
    loss = next_token_loss(logits, labels, num_items_in_batch=num_items)
    assert_same_loss_and_gradient(loss, expected, logits)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 8e-3), (torch.float16, 1e-3)])
def test_half_precision_logits_give_a_float32_loss(logits, labels, dtype, tolerance):
    logits = logits.detach().to(dtype).requires_grad_()
    loss = next_token_loss(logits, labels)
    wide = logits.detach().float().requires_grad_()
    expected = flat_cross_entropy(wide, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)
    (gradient,), (expected_gradient,) = torch.autograd.grad(loss, logits), torch.autograd.grad(expected, wide)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.float(), expected_gradient, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("num_items", [None, 7])
def test_without_labels_the_mean_is_that_of_pytorch_and_gradients_are_zero(logits, num_items):
    nothing = torch.full((3, 5), IGNORED_LABEL)
    loss = next_token_loss(logits, nothing, num_items)
    loss.backward()
    assert loss.isnan() if num_items is None else loss == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))

    projection = [torch.randn(3, 5, 4), torch.randn(VOCAB_SIZE, 4), torch.randn(VOCAB_SIZE)]
    projection = [tensor.requires_grad_() for tensor in projection]
    torch.testing.assert_close(projected_next_token_loss(*projection, nothing, num_items), loss, equal_nan=True)
    projected_next_token_loss(*projection, nothing, num_items).backward()
    assert all(torch.equal(tensor.grad, torch.zeros_like(tensor)) for tensor in projection)


@pytest.mark.parametrize("label", [VOCAB_SIZE, -1])
def test_labels_outside_the_vocabulary_are_refused(logits, labels, label):
    labels[1, 1] = label
    with pytest.raises(
        ValueError, match=f"labels hold the id {label}, which is outside the vocabulary of {VOCAB_SIZE}"
    ):
        next_token_loss(logits, labels)


@pytest.fixture
def projection() -> list[torch.Tensor]:
    """Returns hidden states (time first in memory, as in the models), weight and bias of a head."""
    torch.manual_seed(2)
    hidden_states, weight, bias = torch.randn(5, 3, 7), torch.randn(VOCAB_SIZE, 7), torch.randn(VOCAB_SIZE)
    return [tensor.requires_grad_() for tensor in (hidden_states.transpose(0, 1), weight, bias)]


@pytest.fixture
def mixture(projection) -> list[torch.Tensor]:
    """Returns `hidden_states`, `weight`, `bias` and the scores of three components."""
    hidden_states, weight, bias = (tensor.detach() for tensor in projection)
    torch.manual_seed(3)
    latents = torch.randn(*hidden_states.shape[:2], 3, hidden_states.shape[2])
    return [tensor.requires_grad_() for tensor in (latents, weight, bias, torch.randn(latents.shape[:3]))]


def mixed_log_probabilities(hidden_states, weight, bias, prior_scores):
    components = F.linear(hidden_states, weight, bias).softmax(-1)
    return (prior_scores.softmax(-1).unsqueeze(-1) * components).sum(dim=-2).log()


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("num_items", [None, 7, torch.tensor(7)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_projected_loss_equals_that_of_the_logits(projection, mixture, labels, mixed, num_items, dtype, tolerance):
    inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in (mixture if mixed else projection)]
    logits = mixed_log_probabilities(*inputs) if mixed else F.linear(*inputs)
    expected = next_token_loss(logits, labels, num_items)
    log_priors = inputs[3].log_softmax(-1) if mixed else None
    loss = projected_next_token_loss(*inputs[:3], labels, num_items, log_priors)
    assert loss.dtype == dtype
    gradients, expected_gradients = (torch.autograd.grad(3 * value, inputs) for value in (loss, expected))
    torch.testing.assert_close((loss, *gradients), (expected, *expected_gradients), rtol=tolerance, atol=tolerance)
    with torch.no_grad():
        assert torch.equal(projected_next_token_loss(*inputs[:3], labels, num_items, log_priors), loss)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.02), (torch.float16, 0.003)])
@pytest.mark.parametrize("autocast", [True, False])
def test_the_projected_loss_in_half_precision_is_close_to_that_in_float32(
    projection, labels, dtype, tolerance, autocast
):
    expected = projected_next_token_loss(*projection, labels)
    inputs = projection if autocast else [tensor.detach().to(dtype).requires_grad_() for tensor in projection]
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        loss = projected_next_token_loss(*inputs, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=0)
    for gradient, expected_gradient, given in zip(
        torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, projection), inputs, strict=True
    ):
        assert gradient.dtype == given.dtype
        assert (gradient - expected_gradient).norm() < tolerance * expected_gradient.norm()


@pytest.mark.parametrize("num_softmaxes", [1, 3])
def test_the_projected_loss_never_holds_all_logits(projection, mixture, labels, monkeypatch, num_softmaxes):
    monkeypatch.setattr(vocabulary_loss, "_BYTES_PER_PRODUCT", 8 * VOCAB_SIZE)
    inputs, log_priors = (projection, None) if num_softmaxes == 1 else (mixture[:3], mixture[3].log_softmax(-1))
    with LargestTensor() as largest:
        projected_next_token_loss(*inputs, labels, log_priors=log_priors).backward()
    assert largest.numel == max(tensor.numel() for tensor in inputs) < labels.numel() * num_softmaxes * VOCAB_SIZE


@pytest.mark.parametrize("factor", [1, 0.5])
def test_the_projected_loss_can_be_differentiated_again_and_scaled(projection, labels, factor):
    loss = factor * projected_next_token_loss(*projection, labels)
    expected = torch.autograd.grad(factor * next_token_loss(F.linear(*projection), labels), projection)
    for _ in range(2):
        for tensor in projection:
            tensor.grad = None
        loss.backward(retain_graph=True)
        for tensor, gradient in zip(projection, expected, strict=True):
            torch.testing.assert_close(tensor.grad, gradient)
            tensor.grad.zero_()  # modified by the caller; a later backward pass must ignore it


def test_the_projected_loss_refuses_a_second_derivative(projection, labels):
    (gradient,) = torch.autograd.grad(projected_next_token_loss(*projection, labels), projection[1], create_graph=True)
    with pytest.raises(RuntimeError):
        gradient.sum().backward()


def test_tokens_after_padding_are_not_targets():
    labels = torch.tensor([[9, 1, 2, 3], [4, 5, IGNORED_LABEL, IGNORED_LABEL]])
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])
    targets = next_token_targets(labels, None, mask, labels.shape)
    assert targets.tolist() == [[IGNORED_LABEL, 2, 3, IGNORED_LABEL], [5] + [IGNORED_LABEL] * 3]


def test_shifted_labels_are_not_shifted_again():
    labels, shifted = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6]])
    assert next_token_targets(labels, shifted, torch.zeros(1, 3), (1, 3)) is shifted
