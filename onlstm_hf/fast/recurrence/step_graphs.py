"""Steps of a recurrence as CUDA graphs, so that a GPU does not wait for Python to launch small kernels one by one.

A graph replays its kernels with the arguments that they were recorded with. Here these are the same for every block of
steps: where in the sequence a block starts, and where the sequence's tensors lie, is kept in the GPU's memory. So a
few graphs of fixed numbers of steps serve every length, every position and every tensor.
"""

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

import torch

Kept = TypeVar("Kept")
MAX_KEPT = 8  # sizes of sequences whose buffers and graphs a path keeps
BLOCK_SIZES = (16, 4)  # longest first; the last few steps are launched one by one
GRAPH_DEVICES = ("cuda",)


class GraphRecorder:
    """Records steps as CUDA graphs, until a recording fails: then there is no reason to expect another to succeed.

    All that graphs allocate is the workspace of the matrix products, which is kept for each recording stream. Graphs
    that run one after the other can share it, graphs on several streams cannot: so for each stream that graphs are
    replayed on there is one memory pool and one stream for recording.
    """

    def __init__(self):
        self.has_failed = False
        self._resources: dict[torch.cuda.Stream, tuple] = {}

    def may_record(self, device: torch.device) -> bool:
        """Returns whether steps on this device are worth a recording."""
        return device.type in GRAPH_DEVICES and not self.has_failed

    def record(self, run_steps: Callable[[], None], device: torch.device) -> "torch.cuda.CUDAGraph | None":
        """A graph of what `run_steps` launches, which is not run; `None` and a warning if it cannot be recorded."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
        if stream not in self._resources:
            self._resources[stream] = _new_resources(stream)
        memory_pool, side_stream = self._resources[stream]
        try:
            # Gradients are computed in a thread of their own, and other threads may use the GPU meanwhile.
            with torch.cuda.graph(graph, memory_pool, side_stream, capture_error_mode="thread_local"):
                run_steps()
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a recording that fails may leave its own stream as the current one
            self.has_failed = True
            message = f"CUDA graphs could not be recorded, so every step is launched by itself: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return None
        return graph


class KeptBuffers:
    """Buffers, and graphs that use them, which a path keeps from one sequence to the next.

    Attributes:
        launching: must be held while they are used: the launches of two sequences with the same buffers must not mix,
            and gradients are computed in threads of their own.
        recorder: what records the graphs.
    """

    def __init__(self):
        self.launching = threading.Lock()
        self.recorder = GraphRecorder()
        self._kept: OrderedDict[Hashable, object] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, device: torch.device, sizes: Hashable, make: Callable[[], Kept]) -> Kept:
        """Returns the buffers for sequences of these sizes on the current stream; the oldest unused ones are freed.

        Work on one stream is done in order, so the next sequence may use the same buffers. Recorded products keep the
        precision that was set for float32 when they were recorded.
        """
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        key = device, stream, torch.backends.cuda.matmul.fp32_precision, sizes
        if key not in self._kept:
            with torch.inference_mode(False):  # buffers made in inference mode could not be written to outside of it
                self._kept[key] = make()
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


class StepGraphs:
    """Runs the steps of a recurrence on the current stream, whole blocks of them as CUDA graphs.

    Args:
        run_steps: `run_steps(n)` launches the next `n` steps, and then what moves the position that is kept on the
            device by `n`. It must launch the same kernels with the same arguments whenever it is called, allocate
            nothing and wait for nothing.
        device: where the steps run; anything but a CUDA device runs them directly.
        recorder: what records them, shared by all graphs that belong together.
    """

    def __init__(self, run_steps: Callable[[int], None], device: torch.device, recorder: GraphRecorder):
        self._run_steps, self._device, self._recorder = run_steps, device, recorder
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def run(self, num_steps: int) -> None:
        """Launches the next `num_steps` steps."""
        if self._recorder.may_record(self._device):
            for size in BLOCK_SIZES:
                for _ in range(num_steps // size):
                    self._run_block(size)
                num_steps %= size
        if num_steps:
            self._run_steps(num_steps)

    def _run_block(self, size: int) -> None:
        if size in self._graphs:
            self._graphs[size].replay()
            return
        # Kernels are compiled, and the matrix product is prepared (once a thread), before the recording.
        self._run_steps(size)
        if self._recorder.may_record(self._device):
            graph = self._recorder.record(lambda: self._run_steps(size), self._device)
            if graph is not None:
                self._graphs[size] = graph


def _new_resources(stream: torch.cuda.Stream) -> tuple:
    """A memory pool and a stream for recording."""
    return torch.cuda.graph_pool_handle(), torch.cuda.Stream(stream.device)
