"""Every recurrent layer, and those of the examples, keep what models ask of a layer."""

import sys

import pytest
import torch

from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from onlstm_hf.models.modeling_prpn import ReadingLayer
from onlstm_hf.models.modeling_rnn import CELLS, RNNLayer
from tests.helpers.tiny_models import KINDS
from training.loop.model_setup import run_model_code

INPUT_SIZE, SIZE, LENGTH, BATCH_SIZE = 5, 6, 7, 3


def example_layer(project_root, name: str, layer: str):
    run_model_code(str(project_root / "examples" / f"{name}.py"))
    return getattr(sys.modules[name], layer)(INPUT_SIZE, SIZE, 2, 0.0)


TIME_FIRST = {
    "onlstm": lambda _: ONLSTMLayer(INPUT_SIZE, SIZE, 2, 0.0),
    "minimal_cell": lambda root: example_layer(root, "minimal_cell", "CumaxLSTMLayer"),
    "fast_cell": lambda root: example_layer(root, "fast_cell", "FastCumaxLSTMLayer"),
    **{cell: lambda _, cell=cell: RNNLayer(cell, INPUT_SIZE, SIZE, 0.0) for cell in CELLS},
}
LAYERS = TIME_FIRST | {"prpn": lambda _: ReadingLayer(KINDS["prpn"].config(hidden_size=SIZE), INPUT_SIZE, 0.0)}


def ways(layer) -> tuple[str, ...]:
    """The implementations that one can choose among; a layer that has no choice names none."""
    return getattr(layer, "implementations", ("auto",))


def last_state(name, layer, output):
    """The state after the last step."""
    if name in TIME_FIRST:
        return output.state
    return output.hidden_tape[:, -layer.num_slots :], output.cell_tape[:, -layer.num_slots :]


def make(name, project_root):
    torch.manual_seed(0)
    layer = LAYERS[name](project_root).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    return layer


def sequence(name, layer):
    """Inputs, and what a layer is given beside them and its state; no padding."""
    if name in TIME_FIRST:
        return torch.randn(LENGTH, BATCH_SIZE, INPUT_SIZE).double(), None
    return torch.randn(BATCH_SIZE, LENGTH, INPUT_SIZE).double(), torch.rand(
        BATCH_SIZE, LENGTH, layer.num_slots
    ).double()


@pytest.mark.parametrize("name", LAYERS)
def test_it_has_what_models_read(name, project_root):
    layer = make(name, project_root)
    assert getattr(layer, "implementation", "auto") == "auto" and "auto" in ways(layer)
    inputs, structure = sequence(name, layer)
    output = layer(inputs, *layer.initial_state(BATCH_SIZE), structure)
    assert isinstance(output, tuple)
    assert output.outputs.shape == (*inputs.shape[:2], SIZE)


@pytest.mark.parametrize("name", TIME_FIRST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_in_a_stack_its_outputs_have_the_dtype_of_its_inputs(name, dtype, project_root):
    layer = make(name, project_root).to(dtype)
    inputs, _ = sequence(name, layer)
    for implementation in (name for name in ways(layer) if name != "triton"):
        layer.implementation = implementation
        state = layer.initial_state(BATCH_SIZE)
        for _ in range(2):
            output = layer(inputs.to(dtype), *state, None)
            assert output.outputs.dtype == dtype
            state = last_state(name, layer, output)


@pytest.mark.parametrize("name", LAYERS)
def test_its_state_has_the_rows_of_the_batch_first_and_keeps_its_shapes(name, project_root):
    layer = make(name, project_root)
    inputs, structure = sequence(name, layer)
    first = layer.initial_state(BATCH_SIZE)
    last = last_state(name, layer, layer(inputs, *first, structure))
    assert isinstance(first, tuple) and isinstance(last, tuple)
    assert [tensor.shape for tensor in first] == [tensor.shape for tensor in last]
    assert all(len(tensor) == BATCH_SIZE and tensor.dtype == torch.float64 for tensor in (*first, *last))
    for one, other in zip(first, first[1:], strict=False):
        assert one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize("name", LAYERS)
def test_with_its_last_state_it_goes_on(name, project_root):
    layer = make(name, project_root)
    inputs, structure = sequence(name, layer)
    time = 0 if name in TIME_FIRST else 1
    whole = layer(inputs, *layer.initial_state(BATCH_SIZE), structure)
    state, outputs = layer.initial_state(BATCH_SIZE), []
    for part in (slice(0, 2), slice(2, 3), slice(3, LENGTH)):
        steps = torch.arange(LENGTH)[part]
        part_of_structure = None if structure is None else structure.index_select(1, steps)
        output = layer(inputs.index_select(time, steps), *state, part_of_structure)
        state = last_state(name, layer, output)
        outputs.append(output.outputs)
    torch.testing.assert_close(torch.cat(outputs, dim=time), whole.outputs)
    torch.testing.assert_close(state, last_state(name, layer, whole))


@pytest.mark.parametrize("name", TIME_FIRST)
def test_padding_repeats_what_comes_before_it_and_leaves_the_state(name, project_root):
    layer = make(name, project_root)
    inputs, _ = sequence(name, layer)
    mask = torch.ones(LENGTH, BATCH_SIZE, dtype=torch.bool)
    mask[4:, 1] = False
    padded = layer(inputs, *layer.initial_state(BATCH_SIZE), mask)
    alone = layer(inputs[:4, 1:2], *layer.initial_state(1), None)
    torch.testing.assert_close(padded.outputs[:4, 1:2], alone.outputs)
    assert all(torch.equal(padded.outputs[step, 1], padded.outputs[3, 1]) for step in range(4, LENGTH))
    for ours, expected in zip(last_state(name, layer, padded), last_state(name, layer, alone), strict=True):
        torch.testing.assert_close(ours[1:2], expected)


@pytest.mark.parametrize("name", LAYERS)
def test_every_way_to_compute_it_gives_the_same(name, project_root):
    layer = make(name, project_root)
    inputs, structure = sequence(name, layer)
    expected = layer(inputs, *layer.initial_state(BATCH_SIZE), structure)
    for implementation in ways(layer):
        if implementation in ("native", "triton"):  # these compute in float32, where their own tests compare them
            continue
        layer.implementation = implementation
        output = layer(inputs, *layer.initial_state(BATCH_SIZE), structure)
        torch.testing.assert_close(output.outputs, expected.outputs)
        torch.testing.assert_close(last_state(name, layer, output), last_state(name, layer, expected))


def test_no_layer_of_a_model_is_left_out_here(project_root):
    tested = {type(make(name, project_root)) for name in LAYERS}
    for kind in KINDS.values():
        model = kind.make().model
        assert {type(layer) for layer in getattr(model, "layers", None) or model.reading_network} <= tested
