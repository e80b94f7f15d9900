"""Every recurrent layer, including those of the examples, fulfils the contract of models."""

import sys

import pytest
import torch

from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from onlstm_hf.models.modeling_rnn import CELLS, RNNLayer
from tests.helpers.tiny_models import AWD_LSTMS
from training.loop.model_setup import run_model_code

INPUT_SIZE, SIZE, LENGTH, BATCH_SIZE = 5, 6, 7, 3


def example_layer(project_root, name: str, layer: str):
    run_model_code(str(project_root / "examples" / f"{name}.py"))
    return getattr(sys.modules[name], layer)(INPUT_SIZE, SIZE, 2, 0.0)


# A PRPN's layer also reads memories and their gates; the tests of all models cover it.
LAYERS = {
    "onlstm": lambda _: ONLSTMLayer(INPUT_SIZE, SIZE, 2, 0.0),
    "minimal_cell": lambda root: example_layer(root, "minimal_cell", "CumaxLSTMLayer"),
    "fast_cell": lambda root: example_layer(root, "fast_cell", "FastCumaxLSTMLayer"),
    **{cell: lambda _, cell=cell: RNNLayer(cell, INPUT_SIZE, SIZE, 0.0) for cell in CELLS},
}


def ways(layer) -> tuple[str, ...]:
    """Returns the implementations of a layer; a layer with only one has no names."""
    return getattr(layer, "implementations", ("auto",))


@pytest.fixture(params=list(LAYERS))
def layer(request, project_root):
    torch.manual_seed(0)
    layer = LAYERS[request.param](project_root).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    return layer


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(LENGTH, BATCH_SIZE, INPUT_SIZE).double()


def test_it_has_the_attributes_that_models_read(layer, inputs):
    assert getattr(layer, "implementation", "auto") == "auto" and "auto" in ways(layer)
    output = layer(inputs, *layer.initial_state(BATCH_SIZE), None)
    assert isinstance(output, tuple)
    assert output.outputs.shape == (*inputs.shape[:2], SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_in_a_stack_its_outputs_have_the_dtype_of_its_inputs(layer, dtype, inputs):
    layer.to(dtype)
    for implementation in (name for name in ways(layer) if name != "triton"):
        layer.implementation = implementation
        state = layer.initial_state(BATCH_SIZE)
        for _ in range(2):
            output = layer(inputs.to(dtype), *state, None)
            assert output.outputs.dtype == dtype
            state = output.state


def test_its_state_has_the_rows_of_the_batch_first_and_keeps_its_shapes(layer, inputs):
    first = layer.initial_state(BATCH_SIZE)
    last = layer(inputs, *first, None).state
    assert isinstance(first, tuple) and isinstance(last, tuple)
    assert [tensor.shape for tensor in first] == [tensor.shape for tensor in last]
    assert all(len(tensor) == BATCH_SIZE and tensor.dtype == torch.float64 for tensor in (*first, *last))
    for one, other in zip(first, first[1:], strict=False):
        assert one.data_ptr() != other.data_ptr()


def test_it_continues_from_its_last_state(layer, inputs):
    whole = layer(inputs, *layer.initial_state(BATCH_SIZE), None)
    state, outputs = layer.initial_state(BATCH_SIZE), []
    for part in inputs.split([2, 1, LENGTH - 3]):
        output = layer(part, *state, None)
        state = output.state
        outputs.append(output.outputs)
    torch.testing.assert_close(torch.cat(outputs), whole.outputs)
    torch.testing.assert_close(state, whole.state)


def test_padding_repeats_the_last_output_and_keeps_the_state(layer, inputs):
    mask = torch.ones(LENGTH, BATCH_SIZE, dtype=torch.bool)
    mask[4:, 1] = False
    padded = layer(inputs, *layer.initial_state(BATCH_SIZE), mask)
    alone = layer(inputs[:4, 1:2], *layer.initial_state(1), None)
    torch.testing.assert_close(padded.outputs[:4, 1:2], alone.outputs)
    assert all(torch.equal(padded.outputs[step, 1], padded.outputs[3, 1]) for step in range(4, LENGTH))
    torch.testing.assert_close([tensor[1:2] for tensor in padded.state], list(alone.state))


def test_all_implementations_are_equal(layer, inputs):
    expected = layer(inputs, *layer.initial_state(BATCH_SIZE), None)
    for implementation in ways(layer):
        if implementation in ("native", "triton"):  # these compute in float32; their own tests compare them
            continue
        layer.implementation = implementation
        output = layer(inputs, *layer.initial_state(BATCH_SIZE), None)
        torch.testing.assert_close(output.outputs, expected.outputs)
        torch.testing.assert_close(output.state, expected.state)


def test_all_layers_of_models_are_tested(project_root):
    tested = {type(make(project_root)) for make in LAYERS.values()}
    for kind in AWD_LSTMS.values():
        assert {type(layer) for layer in kind.make().model.layers} <= tested
