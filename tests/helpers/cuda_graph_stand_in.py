"""Stand-in for CUDA graphs without a GPU: launches during a recording run only in replays."""

import functools
import os

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onlstm_hf.fast.recurrence import step_graphs


class StandInGraph:
    """Stand-in for `torch.cuda.CUDAGraph` and the context manager `torch.cuda.graph`."""

    recorded = replayed = 0
    error: Exception | None = None

    def __init__(self):
        self.launches = []

    def replay(self):
        StandInGraph.replayed += 1
        for launch in self.launches:
            launch()


class StandInRecording(TorchDispatchMode):
    """Records PyTorch operations with a given output tensor instead of running them (but runs views), and the kernels
    that Triton's interpreter launches by a `GridExecutor`."""

    def __init__(self, graph, pool, stream, capture_error_mode):
        super().__init__()
        self.launches = graph.launches

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if operation.is_view:
            return operation(*args, **kwargs)
        assert operation._schema.is_mutable, f"{operation} allocates memory in a recorded step"
        self.launches.append(functools.partial(operation, *args, **kwargs))
        return kwargs.get("out", args[0])

    def __enter__(self):
        StandInGraph.recorded += 1
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.interpreter import GridExecutor

            def keep(kernel, *args, **kwargs):
                self.launches.append(functools.partial(self.run, kernel, *args, **kwargs))

            self.run, GridExecutor.__call__ = GridExecutor.__call__, keep
        return super().__enter__()

    def __exit__(self, *error):
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.interpreter import GridExecutor

            GridExecutor.__call__ = self.run
        super().__exit__(*error)
        if StandInGraph.error is not None:
            raise StandInGraph.error


@pytest.fixture
def stand_in_graphs(monkeypatch):
    """Makes the CPU record steps as a GPU does; the class counts recordings and replays."""
    monkeypatch.setattr(StandInGraph, "recorded", 0)
    monkeypatch.setattr(StandInGraph, "replayed", 0)
    monkeypatch.setattr(StandInGraph, "error", None)
    monkeypatch.setattr(step_graphs, "GRAPH_DEVICES", ("cpu",))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: "stream")
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", StandInGraph)
    monkeypatch.setattr(torch.cuda, "graph", StandInRecording)
    return StandInGraph
