import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from torch.utils import _pytree as pytree

from onlstm_hf.models.state import ModelState, RecurrentState, check_state
from tests.helpers.tiny_models import MODEL_TYPES, assert_same_state, random_state


@dataclass
class OtherState(ModelState):
    """A state as another kind of model may have it."""

    tape: tuple[torch.Tensor, ...]
    distances: dict[str, torch.Tensor]


@pytest.fixture
def state() -> RecurrentState:
    torch.manual_seed(0)
    return RecurrentState(tuple((torch.randn(3, 4), torch.randn(3, 2, 2)) for _ in range(2)))


def tensors(state: RecurrentState) -> list[torch.Tensor]:
    return [tensor for layer in state.layers for tensor in layer]


def assert_rows(state: RecurrentState, original: RecurrentState, rows: list[int]):
    assert state.batch_size == len(rows)
    for tensor, source in zip(tensors(state), tensors(original), strict=True):
        assert torch.equal(tensor, torch.stack([source[row] for row in rows]))


def test_index_select_takes_rows_in_the_given_order(state):
    assert_rows(state.index_select(torch.tensor([2, 0])), state, [2, 0])


def test_repeat_interleave_puts_copies_next_to_each_other(state):
    assert_rows(state.repeat_interleave(2), state, [0, 0, 1, 1, 2, 2])


def test_reorder_cache_selects_rows_of_this_object_and_leaves_the_tensors(state):
    reordered, before = RecurrentState(state.layers), copy.deepcopy(state)
    reordered.reorder_cache(torch.tensor([1, 1, 0]))
    assert_rows(reordered, before, [1, 1, 0])
    assert_rows(state, before, [0, 1, 2])


def test_to_changes_dtype_and_device_of_every_tensor(state):
    assert all(tensor.dtype == torch.float64 for tensor in tensors(state.to(torch.float64)))
    assert all(tensor.device.type == "meta" for tensor in tensors(state.to("meta")))
    assert all(tensor.dtype == torch.float16 for tensor in tensors(state.to("cpu", torch.float16)))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_copies_are_equal_and_independent(state, duplicate):
    twin = duplicate(state)
    assert_rows(twin, state, [0, 1, 2])
    twin.layers[0][0].zero_()
    assert state.layers[0][0].any()


def test_pytree_sees_every_tensor(state):
    paths, structure = pytree.tree_flatten_with_path(state)
    assert [pytree.keystr(path) for path, _ in paths] == [f".layers[{layer}][{i}]" for layer in (0, 1) for i in (0, 1)]
    leaves = [leaf for _, leaf in paths]
    assert list(map(id, leaves)) == list(map(id, tensors(state)))
    doubled = pytree.tree_unflatten([leaf * 2 for leaf in leaves], structure)
    assert isinstance(doubled, RecurrentState)
    assert isinstance(doubled.layers, tuple)
    assert_rows(doubled, state.map(lambda tensor: tensor * 2), [0, 1, 2])


@pytest.fixture
def other_state() -> OtherState:
    return OtherState((torch.randn(3, 2, 4), torch.randn(3, 4)), {"soft": torch.randn(3, 5)})


def test_a_state_may_have_any_fields(other_state):
    assert other_state.batch_size == 3
    selected = other_state.index_select(torch.tensor([2, 0]))
    assert type(selected) is OtherState
    assert torch.equal(selected.tape[0], other_state.tape[0][[2, 0]])
    assert torch.equal(selected.distances["soft"], other_state.distances["soft"][[2, 0]])
    other_state.reorder_cache(torch.tensor([2, 0]))
    assert torch.equal(other_state.distances["soft"], selected.distances["soft"])


def test_a_state_of_other_shapes_is_refused(other_state):
    device = torch.device("cpu")
    assert check_state(None, other_state, device).batch_size == 3
    with pytest.raises(ValueError, match=r"expected tensors of shapes .*\(3, 5\)\], got .*\(2, 5\)\]"):
        check_state(other_state.index_select(torch.tensor([2, 0])), other_state, device)


def test_every_kind_of_state_is_loaded_with_the_default_settings_of_torch(other_state, tmp_path):
    torch.save(other_state, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt")
    assert type(loaded) is OtherState
    assert torch.equal(loaded.tape[1], other_state.tape[1])


@pytest.mark.parametrize("kind", MODEL_TYPES.values(), ids=list(MODEL_TYPES))
@pytest.mark.parametrize("is_step", [True, False])
def test_a_step_from_a_state_and_a_whole_text_are_exported(kind, is_step, tmp_path):
    model = kind.make(num_hidden_layers=2)
    ids = torch.randint(12, (3, 1 if is_step else 7))
    options = {"state": random_state(model, 3)} if is_step else {}
    exported = torch.export.export(model, (ids,), options, strict=False)
    torch.export.save(exported, tmp_path / "step.pt2")
    loaded = torch.export.load(tmp_path / "step.pt2").module()
    with torch.no_grad():
        found, expected = loaded(ids.flip(0), **options), model(ids.flip(0), **options)
    torch.testing.assert_close(found.logits, expected.logits)
    assert_same_state(found.state, expected.state)
