import json
import socket

import pytest
import torch
from torch import distributed, multiprocessing, nn

from onlstm_hf.models.modeling_prpn import MaskedBatchNorm
from tests.helpers.forked_processes import forked_context


def make_norms() -> tuple[MaskedBatchNorm, nn.BatchNorm1d]:
    """Ours and that of PyTorch, with the same weights, in float64."""
    torch.manual_seed(0)
    ours, theirs = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    with torch.no_grad():
        for one, other in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
            other.copy_(one.uniform_())
    return ours, theirs


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_without_padding_it_is_the_batch_normalisation_of_pytorch(shape, masked):
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


def test_padding_leaves_statistics_outputs_and_gradients_alone():
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
def test_hardly_any_word_gives_finite_numbers(num_real):
    norm = MaskedBatchNorm(4)
    mask = torch.arange(3) < num_real
    assert norm(torch.randn(3, 4), mask).isfinite().all()
    assert norm.running_var.isfinite().all()


def _one_process(rank: int, port: int, folder: str) -> None:
    """Half of the batch: a first step with padding, a second one without."""
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    norm, _ = make_norms()
    inputs, masks, weights = _batch()
    rows = slice(0, 1) if rank == 0 else slice(1, 3)
    report = {"outputs": [], "gradients": []}
    for mask in masks:
        own = inputs[rows].clone().requires_grad_()
        outputs = norm(own, None if mask is None else mask[rows])
        (outputs * weights[rows]).sum().backward()
        report["outputs"].append(outputs.tolist())
        report["gradients"].append(own.grad.tolist())
    report["running"] = [norm.running_mean.tolist(), norm.running_var.tolist()]
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(report, file)
    distributed.destroy_process_group()


def _batch():
    torch.manual_seed(3)
    inputs = torch.randn(3, 4, 5, dtype=torch.float64)
    weights = torch.randn(3, 4, 5, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
    return inputs, (mask, None), weights * mask.unsqueeze(1)


def test_two_processes_normalise_as_one_with_the_whole_batch(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    forked_context()  # whose server `start_processes` takes
    multiprocessing.start_processes(_one_process, (port, str(tmp_path)), nprocs=2, start_method="forkserver")
    reports = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]

    norm, _ = make_norms()
    inputs, masks, weights = _batch()
    for step, mask in enumerate(masks):
        whole = inputs.clone().requires_grad_()
        outputs = norm(whole, mask)
        (outputs * weights).sum().backward()
        for name, expected in (("outputs", outputs.detach()), ("gradients", whole.grad)):
            theirs = torch.cat([torch.tensor(report[name][step], dtype=torch.float64) for report in reports])
            torch.testing.assert_close(theirs, expected)
    for report in reports:
        running = torch.tensor(report["running"], dtype=torch.float64)
        torch.testing.assert_close(running, torch.stack([norm.running_mean, norm.running_var]))
