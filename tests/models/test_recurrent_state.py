import copy
import pickle
from dataclasses import dataclass
from io import BytesIO

import pytest
import torch
from torch.utils import _pytree as pytree

from onlstm_hf.models.state import ModelState
from tests.helpers.tiny_models import MODEL_TYPES, assert_same_state, random_state


@dataclass
class AnyState(ModelState):
    """A state with the fields of some model."""

    tape: tuple[torch.Tensor, ...]
    distances: dict[str, torch.Tensor]


@pytest.fixture
def state() -> AnyState:
    torch.manual_seed(0)
    return AnyState((torch.randn(3, 2, 4), torch.randn(3, 4)), {"soft": torch.randn(3, 5)})


def tensors(state: AnyState) -> list[torch.Tensor]:
    return [*state.tape, state.distances["soft"]]


def assert_rows(state: AnyState, original: AnyState, rows: list[int]):
    assert type(state) is AnyState and state.batch_size == len(rows)
    for tensor, source in zip(tensors(state), tensors(original), strict=True):
        assert torch.equal(tensor, source[rows])


def test_rows_can_be_reordered_repeated_and_replaced(state):
    before, reordered = copy.deepcopy(state), AnyState(state.tape, state.distances)
    assert_rows(state.index_select(torch.tensor([2, 0])), before, [2, 0])
    assert_rows(state.repeat_interleave(2), before, [0, 0, 1, 1, 2, 2])
    reordered.reorder_cache(torch.tensor([1, 1, 0]))
    assert_rows(reordered, before, [1, 1, 0])
    assert_rows(state, before, [0, 1, 2])


def test_to_changes_dtype_and_device_of_every_tensor(state):
    moved = tensors(state.to("meta", torch.float16))
    assert all((tensor.dtype, tensor.device.type) == (torch.float16, "meta") for tensor in moved)


def saved_and_loaded(state: AnyState) -> AnyState:
    """torch.load allows few classes by default."""
    torch.save(state, file := BytesIO())
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state)), saved_and_loaded]
)
def test_copies_are_equal_and_independent(state, duplicate):
    twin = duplicate(state)
    assert_rows(twin, state, [0, 1, 2])
    twin.tape[0].zero_()
    assert state.tape[0].any()


def test_pytree_sees_every_tensor_and_names_it(state):
    paths, structure = pytree.tree_flatten_with_path(state)
    assert [pytree.keystr(path) for path, _ in paths] == [".tape[0]", ".tape[1]", ".distances['soft']"]
    leaves = [leaf for _, leaf in paths]
    assert list(map(id, leaves)) == list(map(id, tensors(state)))
    doubled = pytree.tree_unflatten([leaf * 2 for leaf in leaves], structure)
    assert isinstance(doubled.tape, tuple)
    assert_rows(doubled, state.map(lambda tensor: tensor * 2), [0, 1, 2])


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
