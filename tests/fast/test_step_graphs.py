import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlstm_hf.fast.recurrence.step_graphs import MAX_KEPT, KeptBuffers, StepGraphs
from tests.helpers.cuda_graph_stand_in import stand_in_graphs  # noqa: F401


class Recurrence:
    """x_{t+1} = 3 x_t + input_t modulo 2 ** 31, with position and state in tensors."""

    def __init__(self, inputs):
        self.inputs = torch.tensor(inputs)
        self.position, self.state = torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        self.gathered = torch.zeros(1, dtype=torch.long)
        self.launched = 0

    def run_steps(self, num_steps):
        self.launched += num_steps
        for _ in range(num_steps):
            torch.index_select(self.inputs, 0, self.position, out=self.gathered)
            self.state.mul_(3).add_(self.gathered).remainder_(2**31)
            self.position.add_(1)

    def expected(self, num_steps):
        state = 0
        for value in self.inputs[:num_steps].tolist():
            state = (3 * state + value) % 2**31
        return state


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4))
def test_any_lengths_are_run_step_by_step(stand_in_graphs, lengths):  # noqa: F811
    recurrence = Recurrence(list(range(1, sum(lengths) + 1)))
    graphs = StepGraphs(recurrence.run_steps, torch.device("cpu"), KeptBuffers())
    done = 0
    for length in lengths:
        graphs.run(length)
        done += length
        assert recurrence.position.item() == done
        assert recurrence.state.item() == recurrence.expected(done)


def test_a_few_recordings_serve_all_lengths(stand_in_graphs):  # noqa: F811
    recurrence = Recurrence([1] * 3000)
    graphs = StepGraphs(recurrence.run_steps, torch.device("cpu"), KeptBuffers())
    for length in range(1, 75):
        graphs.run(length)
    assert stand_in_graphs.recorded == 2
    assert stand_in_graphs.replayed > 100
    launched = recurrence.launched
    graphs.run(70)
    assert recurrence.launched - launched == 70 % 4


def test_nothing_is_recorded_without_a_gpu():
    recurrence = Recurrence(range(64))
    StepGraphs(recurrence.run_steps, torch.device("cpu"), KeptBuffers()).run(64)
    assert recurrence.state.item() == recurrence.expected(64)


def test_a_failed_recording_warns_once_and_launches_single_steps(stand_in_graphs):  # noqa: F811
    stand_in_graphs.error = RuntimeError("operation not permitted when stream is capturing")
    recurrence = Recurrence(range(200))
    kept = KeptBuffers()
    graphs = StepGraphs(recurrence.run_steps, torch.device("cpu"), kept)
    with pytest.warns(RuntimeWarning, match="launched one by one: operation not permitted") as warned:
        graphs.run(100)
        graphs.run(50)
        other = Recurrence(range(64))
        StepGraphs(other.run_steps, torch.device("cpu"), kept).run(64)
    assert len(warned) == 1
    assert recurrence.state.item() == recurrence.expected(150)
    assert other.state.item() == other.expected(64)
    assert (stand_in_graphs.recorded, stand_in_graphs.replayed) == (1, 0)


def test_a_failed_recording_only_stops_its_owner(stand_in_graphs):  # noqa: F811
    stand_in_graphs.error = RuntimeError("not permitted")
    failed, other = KeptBuffers(), KeptBuffers()
    with pytest.warns(RuntimeWarning, match="not permitted"):
        StepGraphs(lambda num_steps: None, torch.device("cpu"), failed).run(16)
    stand_in_graphs.error = None
    StepGraphs(lambda num_steps: None, torch.device("cpu"), other).run(32)
    assert failed.has_failed and not other.has_failed
    assert (stand_in_graphs.recorded, stand_in_graphs.replayed) == (2, 1)


def test_buffers_are_kept_by_size_up_to_a_limit_for_each_owner():
    one, other, cpu = KeptBuffers(), KeptBuffers(), torch.device("cpu")
    buffer = one.get(cpu, 3, object)
    assert one.get(cpu, 3, object) is buffer
    assert one.get(cpu, 4, object) is not buffer and other.get(cpu, 3, object) is not buffer
    for size in range(2 * MAX_KEPT):
        one.get(cpu, size, object)
        assert one.get(cpu, 3, object) is buffer  # the other buffers are evicted, since this one is used in between
    assert len(one._kept) == MAX_KEPT


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_replays_recordings():
    recurrence = Recurrence(list(range(1, 301)))
    for name in ("inputs", "position", "state", "gathered"):
        setattr(recurrence, name, getattr(recurrence, name).cuda())
    kept = KeptBuffers()
    graphs = StepGraphs(recurrence.run_steps, recurrence.state.device, kept)
    thread = threading.Thread(target=graphs.run, args=(70,))  # gradients are computed in another thread
    thread.start()
    thread.join()
    for length in (70, 23, 16, 4, 1, 90):
        graphs.run(length)
    assert recurrence.state.item() == recurrence.expected(274)
    assert sorted(graphs._graphs) == [4, 16]
    assert not kept.has_failed
