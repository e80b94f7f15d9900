"""Tests specific to the recurrent baselines. test_awd_lstm.py tests what they share with the ON-LSTM."""

import pytest
import torch

from onlstm_hf import RNNConfig, RNNForCausalLM
from onlstm_hf.models.configuration_rnn import CELL_TYPES
from onlstm_hf.models.dropout import drop_connect
from onlstm_hf.models.modeling_rnn import RNNLayer

each_cell = pytest.mark.parametrize("cell_type", CELL_TYPES)
STEPS = {"lstm": torch.lstm_cell, "gru": torch.gru_cell, "rnn": torch.rnn_tanh_cell}


def plain_loop(layer, recurrent_weight, inputs, state, mask=None):
    """Computes outputs and last state of a layer step by step with PyTorch's cells; padding keeps the state."""
    projection = layer.input_projection
    weights = projection.weight, recurrent_weight, projection.bias, layer.recurrent_projection.bias
    outputs = []
    for time, step_inputs in enumerate(inputs):
        is_lstm = layer.cell_type == "lstm"
        next_state = STEPS[layer.cell_type](step_inputs, tuple(state) if is_lstm else state[0], *weights)
        next_state = next_state if is_lstm else (next_state,)
        if mask is not None:
            real = mask[time].unsqueeze(-1)
            next_state = [torch.where(real, new, old) for new, old in zip(next_state, state, strict=True)]
        state = next_state
        outputs.append(state[0])
    return torch.stack(outputs), state


@pytest.fixture
def make_layer():
    def make(cell_type, weight_dropout=0.0, input_size=5, size=7):
        torch.manual_seed(0)
        layer = RNNLayer(cell_type, input_size, size, weight_dropout)
        inputs = torch.randn(6, 4, input_size, requires_grad=True)
        state = layer.initial_state(4)
        return layer, inputs, [torch.randn_like(tensor, requires_grad=True) for tensor in state]

    return make


MASKS = {
    "none": None,
    "right": torch.arange(6).unsqueeze(1) < torch.tensor([6, 4, 1, 0]),
    "left": torch.arange(6).unsqueeze(1) >= torch.tensor([0, 2, 5, 6]),
    "holes": torch.tensor([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]]).bool(),
}


@each_cell
@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16 autocast"])
def test_values_and_gradients_equal_a_loop_in_float64(make_layer, cell_type, mask, precision):
    def in_double():
        layer, inputs, state = make_layer(cell_type)
        return layer.double(), *(tensor.detach().double().requires_grad_() for tensor in (inputs, *state))

    def with_gradients(outputs, last, leaves):
        loss = (outputs.double() * weights).sum() + sum(tensor.double().square().sum() for tensor in last)
        return [outputs, *last, *torch.autograd.grad(loss, leaves)]

    mask = MASKS[mask]
    layer, inputs, *state = in_double()
    expected = plain_loop(layer, layer.recurrent_projection.weight, inputs, state, mask)
    weights = torch.randn_like(expected[0])
    wanted = with_gradients(*expected, [inputs, *state, *layer.parameters()])
    if precision != "float64":
        layer, inputs, state = make_layer(cell_type)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16 autocast"):
        output = layer(inputs, *state, mask)
    found = with_gradients(output.outputs, output.state, [inputs, *state, *layer.parameters()])
    tolerance = {"float32": 1e-5, "float64": 1e-10, "bfloat16 autocast": 0.05}[precision]
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


@each_cell
@pytest.mark.parametrize("training", [False, True])
def test_drop_connect_applies_to_the_recurrent_weight(make_layer, cell_type, training):
    layer, inputs, state = make_layer(cell_type, weight_dropout=0.4)
    torch.manual_seed(7)
    outputs = layer.train(training)(inputs, *state, None).outputs
    torch.manual_seed(7)
    weight = drop_connect(layer.recurrent_projection.weight, 0.4, training)
    torch.testing.assert_close(outputs, plain_loop(layer, weight, inputs, state)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("error")
@each_cell
@pytest.mark.parametrize("mask", list(MASKS))
def test_a_gpu_computes_the_same_without_a_warning(make_layer, cell_type, mask):
    layer, inputs, state = make_layer(cell_type)
    mask = MASKS[mask]
    expected = layer(inputs, *state, mask).outputs
    on_gpu = [tensor.cuda() for tensor in (inputs, *state)]
    layer, mask = layer.cuda(), None if mask is None else mask.cuda()
    outputs = layer(*on_gpu, mask).outputs
    torch.testing.assert_close(outputs.cpu(), expected, rtol=1e-3, atol=1e-3)
    outputs.sum().backward()
    with torch.autocast("cuda", torch.bfloat16):
        assert layer(*on_gpu, mask).outputs.dtype == torch.bfloat16


def test_parsing_is_refused_with_the_reason():
    model = RNNForCausalLM(RNNConfig(vocab_size=9, embedding_size=4, hidden_size=6))
    for method in (model.parse, model.syntactic_distances, model.draw_distances):
        with pytest.raises(ValueError, match="this model induces no trees"):
            method(torch.tensor([[1, 2, 3]]))


@each_cell
def test_weights_are_initialised_as_in_the_paper(cell_type):
    """All weights except embeddings and decoder are uniform within the inverse square root of the layer size."""
    torch.manual_seed(0)
    model = RNNForCausalLM(RNNConfig(cell_type=cell_type, vocab_size=500, embedding_size=20, hidden_size=40))
    assert 0.099 < model.get_input_embeddings().weight.abs().max() <= 0.1
    assert not model.lm_head.bias.any()
    for layer, size in zip(model.model.layers, (40, 40, 20), strict=True):
        for parameter in layer.parameters():
            assert 0.85 * size**-0.5 < parameter.abs().max() <= size**-0.5
