"""Steps of a recurrence as CUDA graphs, so that a GPU does not wait for Python to launch small kernels one by one.

A graph replays its kernels with the arguments that they were recorded with. Here these are the same for every block of
steps: where in the sequence a block starts, and where the sequence's tensors lie, is kept in the GPU's memory. So a
few graphs of fixed numbers of steps serve every length, every position and every tensor.

The environment variable `ONLSTM_CUDA_GRAPHS=0` switches graphs off.
"""

import functools
import os
import warnings
from collections.abc import Callable

import torch

BLOCK_SIZES = (16, 4)  # longest first; the last few steps are launched one by one
GRAPH_DEVICES = ("cuda",)


class StepGraphs:
    """Runs the steps of a recurrence on the current stream, whole blocks of them as CUDA graphs.

    Args:
        run_steps: `run_steps(n)` launches the next `n` steps, and then what moves the position that is kept on the
            device by `n`. It must launch the same kernels with the same arguments whenever it is called, allocate
            nothing and wait for nothing.
        device: where the steps run; anything but a CUDA device runs them directly.
    """

    # Shared by all: after one failure there is no reason to expect another recording to succeed.
    _refused = False

    def __init__(self, run_steps: Callable[[int], None], device: torch.device):
        self._run_steps, self._device = run_steps, device
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def run(self, num_steps: int) -> None:
        """Launches the next `num_steps` steps."""
        if self._may_record():
            for size in BLOCK_SIZES:
                for _ in range(num_steps // size):
                    self._run_block(size)
                num_steps %= size
        if num_steps:
            self._run_steps(num_steps)

    def _may_record(self) -> bool:
        switched_off = os.environ.get("ONLSTM_CUDA_GRAPHS") == "0"
        return self._device.type in GRAPH_DEVICES and not StepGraphs._refused and not switched_off

    def _run_block(self, size: int) -> None:
        if size in self._graphs:
            self._graphs[size].replay()
            return
        # What compiles kernels and prepares the matrix product (once a thread) must come before the recording.
        self._run_steps(size)
        if self._may_record():
            self._record(size)

    def _record(self, size: int) -> None:
        """Records, without running it, a block of steps."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        memory_pool, side_stream = _recording_resources(stream)
        try:
            # Gradients are computed in a thread of their own, and other threads may use the GPU meanwhile.
            with torch.cuda.graph(graph, memory_pool, side_stream, capture_error_mode="thread_local"):
                self._run_steps(size)
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a recording that fails may leave its own
            StepGraphs._refused = True
            message = f"CUDA graphs could not be recorded, so every step is launched by itself: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            self._graphs[size] = graph


@functools.cache
def _recording_resources(stream: torch.cuda.Stream):
    """The memory pool and the stream with which graphs that are replayed on `stream` are recorded.

    All that graphs allocate is the workspace of the matrix products, which is kept per recording stream: graphs that
    run one after the other can share it, graphs on several streams cannot.
    """
    return torch.cuda.graph_pool_handle(), torch.cuda.Stream(stream.device)
