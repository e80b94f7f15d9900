"""Tests specific to the ON-LSTM. test_recurrent_language_model.py and test_awd_lstm.py test the rest."""

import copy

import pytest
import torch

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM
from onlstm_hf.models.state import RecurrentState
from tests.helpers.tiny_models import KINDS, SIDES, pad

ONLSTM = KINDS["onlstm"]


@pytest.fixture
def model():
    return ONLSTM.make()


def test_syntactic_distances_are_the_forget_distances_of_the_parse_layer(model, input_ids):
    outputs = model(input_ids, output_distances=True)
    for layer in (None, 0, 1, 2):
        distances, state = model.syntactic_distances(input_ids, layer=layer)
        used = 1 if layer is None else layer
        assert torch.equal(distances, outputs.forget_distances[used])
        for ours, expected in zip(state.layers[: used + 1], outputs.state.layers, strict=False):
            assert all(map(torch.equal, ours, expected))
        zeros = model.model.initial_state(len(input_ids)).layers
        for ours, expected in zip(state.layers[used + 1 :], zeros[used + 1 :], strict=True):
            assert all(map(torch.equal, ours, expected))  # layers above the parse layer are not run


@pytest.mark.parametrize("num_layers", [0, 4, -1])
def test_a_number_of_layers_out_of_range_is_refused(model, input_ids, num_layers):
    with pytest.raises(ValueError, match=f"num_layers must be an integer from 1 to 3, not {num_layers}"):
        model.model(input_ids, num_layers=num_layers)
    with pytest.raises(ValueError, match=f"layer {num_layers - 1} does not exist: layers are 0 to 2"):
        model.syntactic_distances(input_ids, layer=num_layers - 1)


@SIDES
def test_padding_does_not_change_distances_and_has_none(model, rows, side):
    input_ids, mask, places = pad(rows, side)
    padded = model(input_ids, attention_mask=mask, output_distances=True)
    for distances in (padded.forget_distances, padded.input_distances):
        assert (distances[:, mask == 0] == 0).all() and (distances[:, mask == 1] > 0).all()
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        alone = model(row.unsqueeze(0), output_distances=True)
        for name in ("forget_distances", "input_distances"):
            torch.testing.assert_close(padded[name][:, index, place], alone[name][:, 0])


def test_distances_work_in_tuples_and_half_precision(model, input_ids):
    expected = model(input_ids, output_distances=True)
    _, _, *distances = model(input_ids, output_distances=True, return_dict=False)
    torch.testing.assert_close(distances, [expected.forget_distances, expected.input_distances], rtol=0, atol=0)
    for dtype in (torch.bfloat16, torch.float16):
        half = copy.deepcopy(model).to(dtype)(input_ids, output_distances=True)
        torch.testing.assert_close(half.forget_distances.float(), expected.forget_distances, rtol=0, atol=0.05)


def test_a_layer_of_a_single_chunk_runs_but_never_writes_its_cell(input_ids):
    """With one chunk the master input gate is 0 and the master forget gate is 1."""
    model = ONLSTM.make(hidden_size=8, layer_sizes=[8, 8], num_hidden_layers=2, chunk_size=8)
    state = RecurrentState(tuple((torch.rand(3, 8), torch.rand(3, 1, 8)) for _ in range(2)))
    outputs = model(input_ids, state=state, output_distances=True, labels=input_ids)
    outputs.loss.backward()
    for (_, before), (_, after) in zip(state.layers, outputs.state.layers, strict=True):
        torch.testing.assert_close(after, before)
    torch.testing.assert_close(outputs.forget_distances, torch.zeros(2, 3, 6), rtol=0, atol=1e-6)


def test_weights_are_initialised_as_in_the_paper():
    torch.manual_seed(0)
    sizes = {"vocab_size": 500, "embedding_size": 20, "hidden_size": 40}
    model = ONLSTMForCausalLM(ONLSTMConfig(**sizes))
    embeddings = model.get_input_embeddings().weight
    assert 0.099 < embeddings.abs().max() <= 0.1
    assert embeddings.mean().abs() < 0.01
    assert not model.lm_head.bias.any()
    untied = ONLSTMForCausalLM(ONLSTMConfig(**sizes, tie_word_embeddings=False))
    assert 0.099 < untied.lm_head.weight.abs().max() <= 0.1
    for layer in model.model.layers:
        for projection in (layer.input_projection, layer.recurrent_projection):
            bound = projection.in_features**-0.5
            for parameter in projection.parameters():
                assert 0.9 * bound < parameter.abs().max() <= bound
