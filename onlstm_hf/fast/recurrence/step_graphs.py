"""Steps of a recurrence as CUDA graphs, so that a GPU does not wait for Python to launch small kernels one by one.

A graph replays its kernels with their recorded arguments. Here these are the same for every block of steps: the start
of the block and the addresses of the tensors are stored in GPU memory. So a few graphs with fixed numbers of steps
serve every length, position and tensor.
"""

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

import torch

Kept = TypeVar("Kept")
MAX_KEPT = 8  # number of sequence sizes whose buffers and graphs a path caches
BLOCK_SIZES = (16, 4)  # longest first; the last few steps are launched one by one
GRAPH_DEVICES = ("cuda",)


class KeptBuffers:
    """Buffers that a path reuses for later sequences, and the recording of CUDA graphs that use them.

    Graphs only allocate the workspace of the matrix products. Graphs on the same stream run in order and can share it,
    graphs on different streams cannot. So each replay stream has its own memory pool and recording stream.

    Attributes:
        launching: lock to hold while using them: two sequences with the same buffers must not mix their launches, and
            autograd has its own threads.
        has_failed: whether a recording failed. Then no more are made, as others would fail, too.
    """

    def __init__(self):
        self.launching = threading.Lock()
        self.has_failed = False
        self._kept: OrderedDict[Hashable, object] = OrderedDict()
        self._resources: dict[torch.cuda.Stream, tuple] = {}

    def get(self, device: torch.device, sizes: Hashable, make: Callable[[], Kept]) -> Kept:
        """Returns the buffers for sequences of these sizes on the current stream; frees the least recently used ones.

        Work on one stream runs in order, so the next sequence can use the same buffers. The key includes the float32
        precision setting, as recorded products keep theirs.
        """
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        key = device, stream, torch.backends.cuda.matmul.fp32_precision, sizes
        if key not in self._kept:
            with torch.inference_mode(False):  # inference-mode buffers cannot be written outside it
                self._kept[key] = make()
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def may_record(self, device: torch.device) -> bool:
        return device.type in GRAPH_DEVICES and not self.has_failed and not is_capturing(device)

    def record(self, run_steps: Callable[[], None], device: torch.device) -> "torch.cuda.CUDAGraph | None":
        """Records, without running, what `run_steps` launches. Warns and returns `None` if that fails."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
        if stream not in self._resources:
            self._resources[stream] = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)
        memory_pool, side_stream = self._resources[stream]
        try:
            # Autograd records in its own thread, and other threads may use the GPU meanwhile.
            with torch.cuda.graph(graph, memory_pool, side_stream, capture_error_mode="thread_local"):
                run_steps()
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a failed recording may leave its stream as the current one
            self.has_failed = True
            message = f"CUDA graphs could not be recorded, so steps are launched one by one: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return None
        return graph


class StepGraphs:
    """Runs the steps of a recurrence on the current stream: on CUDA devices in blocks, as graphs that `kept` records.

    `run_steps(n)` launches the next `n` steps, and then advances the position on the device by `n`. It must always
    launch the same kernels with the same arguments, without allocating memory or synchronising.
    """

    def __init__(self, run_steps: Callable[[int], None], device: torch.device, kept: KeptBuffers):
        self._run_steps, self._device, self._kept = run_steps, device, kept
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def run(self, num_steps: int) -> None:
        if self._kept.may_record(self._device):
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
        # Compiles the kernels and initialises the matrix library (once per thread) before recording.
        self._run_steps(size)
        if self._kept.may_record(self._device):
            graph = self._kept.record(lambda: self._run_steps(size), self._device)
            if graph is not None:
                self._graphs[size] = graph


def is_capturing(device: torch.device) -> bool:
    """Returns whether the caller records a CUDA graph, which must own all memory that it uses."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
