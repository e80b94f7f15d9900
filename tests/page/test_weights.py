"""Rounding and writing of the page's weights."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.page.rounding import COARSEST, FINEST, calibrate, choose_limits, round_rows
from onlstm_hf.page.weights import MAX_BYTES, page_tensors, write_weights
from tests.helpers.tiny_models import KINDS

WEIGHTS = "onlstm_hf.page.weights"


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 40), st.data())
def test_each_row_keeps_its_largest_weight_and_no_weight_moves_by_more_than_half_a_step(seed, rows, columns, data):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    limits = torch.tensor(data.draw(st.lists(st.integers(COARSEST, FINEST), min_size=rows, max_size=rows)))
    integers, scales = round_rows(weight, limits)
    assert (integers.abs().amax(dim=1) == limits).all()
    error = (integers * scales[:, None] - weight).abs()
    assert (error <= scales[:, None] * 0.501).all()


def test_rows_of_zeros_stay_zeros():
    integers, scales = round_rows(torch.zeros(2, 5), torch.full((2,), COARSEST), moments=torch.eye(5))
    assert not integers.any() and scales.isfinite().all()


def test_gptq_changes_outputs_less_than_plain_rounding():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2000, 8, generator=generator) @ torch.randn(8, 64, generator=generator)
    inputs += 0.05 * torch.randn(2000, 64, generator=generator)
    weight = torch.randn(16, 64, generator=generator)

    def error(moments):
        integers, scales = round_rows(weight, torch.full((16,), COARSEST), moments)
        return ((integers * scales[:, None] - weight) @ inputs.T).square().mean()

    assert error(inputs.T @ inputs / len(inputs)) < error(None) / 4


def test_bits_are_allocated_with_the_smallest_total_error():
    sensitivities = {"a": torch.tensor([1.0, 5.0, 40.0]).double(), "b": torch.tensor([0.0, 3.0]).double()}
    limits = choose_limits(sensitivities, coarseness=4)
    assert limits["b"][0] == COARSEST and all((limit <= FINEST).all() for limit in limits.values())
    sensitivity = torch.cat([sensitivities["a"], sensitivities["b"][1:]])
    chosen = torch.cat([limits["a"], limits["b"][1:]]).clone()

    def error(limits):
        return (sensitivity / limits).square().sum()

    movable = [row for row in range(len(chosen)) if chosen[row] > COARSEST]
    assert len(movable) > 2
    for giver, taker in itertools.permutations(movable, 2):  # the total number of bits stays the same
        other = chosen.clone()
        other[giver] /= 1.1
        other[taker] *= 1.1
        assert error(other) > error(chosen)
    coarser = choose_limits(sensitivities, coarseness=5)
    assert all((coarser[name] == (limits[name] / 2).clamp(min=COARSEST)).all() for name in limits)


@pytest.mark.parametrize("name", ["onlstm", "prpn", "lstm"])
def test_calibration_fits_the_matrices_and_restores_the_random_state(name):
    model = KINDS[name].make(eos_token_id=0)
    matrices = {name: tensor for name, tensor in page_tensors(model).items() if tensor.dim() > 1}
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    moments, sensitivities = calibrate(model)
    assert torch.equal(torch.rand(3), expected)
    assert ("embeddings.weight" in moments) == (name != "lstm")
    for matrix, moment in moments.items():
        assert moment.shape == (matrices[matrix].shape[1],) * 2
        assert torch.linalg.eigvalsh(moment.double())[0] > -1e-6
    assert {name: len(rows) for name, rows in sensitivities.items()} == {
        name: len(matrix) for name, matrix in matrices.items()
    }
    assert any(rows.any() for rows in sensitivities.values()) == (name != "lstm")


def test_sensitivities_show_which_rows_change_the_distances_most():
    model = KINDS["onlstm"].make(eos_token_id=0, num_hidden_layers=3, parse_layer=1)
    _, sensitivities = calibrate(model)
    assert not sensitivities["layers.2.input_projection.weight"].any()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 12, (64, 20), generator=generator)

    @torch.no_grad()
    def distances():
        return model(ids, output_distances=True).forget_distances[1]

    before, changes, expected = distances(), [], []
    for name in ("layers.0.input_projection.weight", "layers.1.recurrent_projection.weight"):
        weight = model.get_parameter(f"model.{name}").data
        for row in (sensitivities[name] > 1e-3).nonzero().flatten().tolist()[::3]:
            kept = weight[row].clone()
            trials = []
            for _ in range(6):
                weight[row] += 1e-2 * kept.abs().max() * torch.randn(weight.shape[1], generator=generator)
                trials.append((distances() - before).square().mean())
                weight[row] = kept
            changes.append(torch.stack(trials).mean().sqrt().item() / weight.shape[1] ** 0.5)
            expected.append(sensitivities[name][row].item())
    assert len(changes) > 20 and max(expected) > 30 * min(expected)
    assert np.corrcoef(np.log(changes), np.log(expected))[0, 1] > 0.9


def test_sensitive_rows_have_finer_steps_within_the_target_size(tmp_path, monkeypatch):
    model = KINDS["onlstm"].make(eos_token_id=0, hidden_size=64, embedding_size=64)

    def write(least, most):
        monkeypatch.setattr(f"{WEIGHTS}.LEAST_BYTES_PER_WEIGHT", least)
        monkeypatch.setattr(f"{WEIGHTS}.MOST_BYTES_PER_WEIGHT", most)
        write_weights(model, tmp_path / "weights.bin")
        return (tmp_path / "weights.bin").stat().st_size

    with pytest.raises(ValueError, match="precision must be int8 or float32, not 'x'"):
        write_weights(model, tmp_path / "weights.bin", "x")
    num_weights = sum(tensor.numel() for tensor in page_tensors(model).values() if tensor.dim() > 1)
    coarsest, finest = write(0, 0), write(9, 9)
    for bytes_per_weight in (1.3, 1.5):
        target = bytes_per_weight * num_weights  # smaller than the target size for all models
        assert coarsest < 0.97 * target < write(0, bytes_per_weight) <= 1.005 * target < finest
    monkeypatch.setattr(f"{WEIGHTS}.MAX_BYTES", 0)
    assert write(1.3, 2) <= 1.005 * 1.3 * num_weights < write(1.4, 2)  # a large model
    assert MAX_BYTES < 9_000_000
