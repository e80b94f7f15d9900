"""State that is kept from one call to the next has one owner, which can be asked to forget it."""

import ast
from pathlib import Path

import pytest
import torch

from onlstm_hf.fast.onlstm import triton as module
from onlstm_hf.fast.onlstm.contract import Inputs, Options, Trace
from onlstm_hf.fast.recurrence.step_graphs import GraphRecorder, StepGraphs
from tests.helpers.cuda_graph_stand_in import stand_in_graphs  # noqa: F401

OPS = Path(__file__).resolve().parents[2] / "onlstm_hf" / "fast"


@pytest.fixture
def sequence(monkeypatch):
    """The arguments of `Workspaces.workspace` for sequences of some length and batch size."""
    monkeypatch.setattr(module, "TABLE_SIZE", 10, raising=False)

    def make(length, batch_size):
        inputs = Inputs(
            torch.zeros(length, batch_size, 10), torch.ones(10, 2), None, torch.zeros(batch_size, 2),
            torch.zeros(batch_size, 1, 2), None,
        )  # fmt: skip
        options = Options(0.5, product_in_bfloat16=False, save_for_backward=False)
        return length, Trace.empty(inputs, options), inputs, options

    return make


def test_workspaces_are_kept_by_size_as_far_as_allowed_and_each_owner_has_its_own(sequence):
    one, other = module.Workspaces(), module.Workspaces()
    workspace, *_ = one.workspace(*sequence(8, 3))
    assert one.workspace(*sequence(9, 3))[0] is workspace
    assert one.workspace(*sequence(8, 4))[0] is not workspace
    assert other.workspace(*sequence(8, 3))[0] is not workspace
    assert torch.equal(workspace.weight[:10, :2], torch.full((10, 2), 0.5))
    assert (len(one), len(other)) == (2, 1)
    for batch_size in range(1, 2 * module.MAX_KEPT_WORKSPACES):
        one.workspace(*sequence(8, batch_size))
        one.workspace(*sequence(8, 3))
    assert len(one) == module.MAX_KEPT_WORKSPACES
    assert one.workspace(*sequence(8, 3))[0] is workspace  # the others were given up, as it was used in between


def test_workspaces_of_short_sequences_are_not_kept(sequence):
    workspaces = module.Workspaces()
    workspaces.workspace(*sequence(module.MIN_KEPT_LENGTH - 1, 3))
    assert len(workspaces) == 0


def test_what_is_cleared_is_forgotten_also_that_recording_failed(sequence):
    workspaces = module.Workspaces()
    workspace, *_ = workspaces.workspace(*sequence(8, 3))
    workspaces.recorder.has_failed = True
    workspaces.clear()
    assert len(workspaces) == 0 and not workspaces.recorder.has_failed
    assert workspaces.workspace(*sequence(8, 3))[0] is not workspace


def test_a_recording_that_fails_stops_only_its_own_recorder(stand_in_graphs):  # noqa: F811
    stand_in_graphs.error = RuntimeError("not permitted")
    failed, other = GraphRecorder(), GraphRecorder()
    with pytest.warns(RuntimeWarning, match="not permitted"):
        StepGraphs(lambda num_steps: None, torch.device("cpu"), failed).run(16)
    stand_in_graphs.error = None
    StepGraphs(lambda num_steps: None, torch.device("cpu"), other).run(32)
    assert failed.has_failed and not other.has_failed
    assert (stand_in_graphs.recorded, stand_in_graphs.replayed) == (2, 1)


@pytest.mark.parametrize("path", sorted(OPS.rglob("*.py")), ids=lambda path: path.relative_to(OPS).as_posix())
def test_no_module_keeps_anything_beside_its_owners(path):
    """No caches of functions, no `global`, no attributes of classes that are set while the program runs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Global)
        if isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}
            assert not decorators & {"cache", "lru_cache"}
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assert not (isinstance(node.value, ast.Name) and node.value.id in classes)
