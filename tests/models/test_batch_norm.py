import pytest
import torch
from torch import distributed, nn

from onlstm_hf.models.modeling_prpn import MaskedBatchNorm
from tests.helpers.forked_processes import run_ranks


def make_norms() -> tuple[MaskedBatchNorm, nn.BatchNorm1d]:
    """Returns our layer and that of PyTorch with the same weights, in float64."""
    torch.manual_seed(0)
    ours, theirs = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    with torch.no_grad():
        for one, other in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
            other.copy_(one.uniform_())
    return ours, theirs


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_without_padding_it_equals_batch_normalisation_of_pytorch(shape, masked):
    ours, theirs = make_norms()
    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(shape[:1] + shape[2:], dtype=torch.bool) if masked else None
    for training in (True, True, False):
        expected = theirs.train(training)(inputs)
        outputs = ours.train(training)(inputs, mask)
        torch.testing.assert_close(outputs, expected)
        weights = torch.randn_like(outputs)
        gradients = [
            torch.autograd.grad((output * weights).sum(), [inputs, *norm.parameters()])
            for output, norm in ((outputs, ours), (expected, theirs))
        ]
        torch.testing.assert_close(*gradients)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_padding_does_not_change_statistics_outputs_or_gradients():
    ours, theirs = make_norms()
    inputs = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()
    outputs = ours(inputs, mask).transpose(1, 2)[mask]
    expected = theirs(inputs.transpose(1, 2)[mask])
    torch.testing.assert_close(outputs, expected)
    weights = torch.randn_like(outputs)
    gradients = [torch.autograd.grad((values * weights).sum(), inputs)[0] for values in (outputs, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("num_real", [0, 1])
def test_very_few_words_give_finite_numbers(num_real):
    norm = MaskedBatchNorm(4)
    mask = torch.arange(3) < num_real
    assert norm(torch.randn(3, 4), mask).isfinite().all()
    assert norm.running_var.isfinite().all()


def steps(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns outputs and gradients `[2, 2, B, 4, 5]`, with and without padding, and running statistics `[2, 4]`."""
    norm, _ = make_norms()
    torch.manual_seed(3)
    inputs, weights = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
    found = []
    for is_padded in (True, False):
        own = inputs[rows].clone().requires_grad_()
        outputs = norm(own, mask[rows] if is_padded else None)
        (outputs * (weights * mask.unsqueeze(1))[rows]).sum().backward()
        found.append(torch.stack([outputs.detach(), own.grad]))
    return torch.stack(found), torch.stack([norm.running_mean, norm.running_var])


def _one_process(folder: str) -> None:
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.save(steps(slice(0, 1) if rank == 0 else slice(1, 3)), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_normalise_like_one_with_the_whole_batch(tmp_path):
    run_ranks(2, _one_process, str(tmp_path))
    found, running = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)), strict=True)
    expected, expected_running = steps(slice(None))
    torch.testing.assert_close(torch.cat(found, dim=2), expected)
    for statistics in running:
        torch.testing.assert_close(statistics, expected_running)
