"""The weights that the page loads: how they are rounded and written."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.page.rounding import COARSE, FINE, input_moments, round_rows
from onlstm_hf.page.weights import MAX_BYTES, page_tensors, write_weights
from tests.helpers.tiny_models import KINDS


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 40), st.data())
def test_each_row_keeps_its_largest_weight_and_no_weight_moves_by_more_than_half_a_step(seed, rows, columns, data):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    fine = data.draw(st.integers(0, rows))
    integers, scales = round_rows(weight, fine)
    assert (integers[:fine].abs() <= FINE).all() and (integers[fine:].abs() <= COARSE).all()
    error = (integers * scales[:, None] - weight).abs()
    assert (error <= scales[:, None] * 0.501).all()


def test_rows_of_zeros_stay_zeros():
    integers, scales = round_rows(torch.zeros(2, 5), moments=torch.eye(5))
    assert not integers.any() and scales.isfinite().all()


def test_with_the_inputs_known_the_outputs_change_less_than_by_rounding_to_the_nearest():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2000, 8, generator=generator) @ torch.randn(8, 64, generator=generator)
    inputs += 0.05 * torch.randn(2000, 64, generator=generator)
    weight = torch.randn(16, 64, generator=generator)

    def error(moments):
        integers, scales = round_rows(weight, moments=moments)
        return ((integers * scales[:, None] - weight) @ inputs.T).square().mean()

    assert error(inputs.T @ inputs / len(inputs)) < error(None) / 4


@pytest.mark.parametrize("name", ["onlstm", "prpn", "lstm"])
def test_the_moments_fit_the_matrices_and_the_random_numbers_of_others_stay_as_they_were(name):
    model = KINDS[name].make(eos_token_id=0)
    tensors = page_tensors(model)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    moments = input_moments(model)
    assert torch.equal(torch.rand(3), expected)
    assert ("embeddings.weight" in moments) == (name != "lstm")
    for matrix, moment in moments.items():
        assert moment.shape == (tensors[matrix].shape[1],) * 2
        assert torch.linalg.eigvalsh(moment.double())[0] > -1e-6


@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_is_read_back(tmp_path, name):
    model = KINDS[name].make(eos_token_id=0)
    descriptions = write_weights(model, tmp_path / "weights.bin")
    content = (tmp_path / "weights.bin").read_bytes()
    offset = 0
    for description, tensor in zip(descriptions, page_tensors(model).values(), strict=True):
        shape = description["shape"]
        assert shape == list(tensor.shape)
        if description["dtype"] == "float32":
            count = 4 * tensor.numel()
            values = np.frombuffer(content, "<f4", tensor.numel(), offset).reshape(shape)
            assert (values == tensor.numpy()).all()
        else:
            rows, columns = shape
            fine = description["fine"]
            scales = np.frombuffer(content, "<f4", rows, offset)
            first = np.frombuffer(content, "<i2", fine * columns, offset + 4 * rows)
            others = np.frombuffer(content, "<i1", (rows - fine) * columns, offset + 4 * rows + 2 * first.size)
            integers = np.concatenate([first.astype(np.int64), others.astype(np.int64)]).reshape(shape)
            count = 4 * rows + 2 * first.size + others.size
            error = np.abs(integers * scales[:, None] - tensor.numpy()).max()
            assert error <= 0.1 * np.abs(tensor.numpy()).max()
        offset += count + -count % 4
    assert offset == len(content)


def test_frequent_words_have_16_bits_while_there_is_room(tmp_path, monkeypatch):
    model = KINDS["onlstm"].make(eos_token_id=0)
    monkeypatch.setattr("onlstm_hf.page.weights.MAX_BYTES", 0)
    smallest = {item["name"]: item for item in write_weights(model, tmp_path / "small.bin")}
    assert smallest["embeddings.weight"]["fine"] == 0
    size = (tmp_path / "small.bin").stat().st_size
    monkeypatch.setattr("onlstm_hf.page.weights.MAX_BYTES", size + 5 * model.config.embedding_size)
    larger = {item["name"]: item for item in write_weights(model, tmp_path / "large.bin")}
    assert 0 < larger["embeddings.weight"]["fine"] <= 5
    assert (tmp_path / "large.bin").stat().st_size <= size + 5 * model.config.embedding_size + 8
    assert MAX_BYTES < 9_000_000


@pytest.mark.parametrize(
    "options, message",
    [({"num_softmaxes": 2}, "one softmax"), ({}, "precision must be one of int8, float32, not 'x'")],
)
def test_what_the_page_cannot_compute_is_refused(tmp_path, options, message):
    model = KINDS["onlstm"].make(eos_token_id=0, **options)
    with pytest.raises(ValueError, match=message):
        write_weights(model, tmp_path / "weights.bin", "int8" if options else "x")
    assert list(tmp_path.iterdir()) == []
