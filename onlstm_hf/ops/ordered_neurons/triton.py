"""The ordered-neurons recurrence on a GPU: one matrix product and one Triton kernel a step, replayed as CUDA graphs.

The product with the recurrent weight stays with the matrix library, on tensor cores in bfloat16 and where float32 may
use them; the kernels of `ordered_neurons_kernels.py` do everything else of a step, in float32.
"""

import functools
import threading

import torch

from ..fast_path import FastPath
from ..step_graphs import StepGraphs

try:
    from .kernels import TABLE_SIZE, backward_step, forward_step, write_table
except ImportError:  # Triton is not installed
    forward_step = None

# Each keeps a copy of a recurrent weight and the buffers of one step.
MAX_KEPT_WORKSPACES = 8
# Shorter sequences, one-token decoding above all, gain nothing from a copy of the weight and from recorded steps.
MIN_KEPT_LENGTH = 4
# Tensor cores read fastest what has whole multiples of 16 bytes in every row.
PITCH = 16
# That of the oldest GPUs that Triton compiles for.
MIN_CAPABILITY = (7, 5)


def obstacle(sequence: torch.Tensor) -> str | None:
    """Why this path cannot run on such tensors, if it cannot."""
    if sequence.device.type != "cuda":
        return f"it needs tensors on a GPU, not on {sequence.device}"
    if sequence.dtype == torch.float64:
        return "it computes in float32, not in float64"
    if sequence.numel() == 0:
        return "there is nothing to compute: the batch is empty"
    if forward_step is None:
        return "Triton is not installed (pip install triton)"
    if torch.cuda.get_device_capability(sequence.device) < MIN_CAPABILITY:
        return f"Triton needs a GPU of compute capability {'.'.join(map(str, MIN_CAPABILITY))} or later"
    return None


class _Workspace:
    """The buffers that the steps of one recurrence share, and the launches of its steps.

    Attributes:
        weight: `[G, H]`, the scaled recurrent weight in the dtype of the product; to be set.
        hidden: `[B, H]`: going forward the hidden state that is multiplied with the weight, backward the gradient that
            comes out of its product.
        gates: `[B, G]`: forward what comes out of the product, backward the gradient that goes in.
        table, carried: what else a step reads and hands on (see `forward_step` and `backward_step`).

    The first three may have more columns (and the weight rows), of zeros.
    """

    def __init__(self, device, batch_size, num_chunks, chunk_size, product_dtype, sequence_dtype, pitch=1):
        size = num_chunks * chunk_size
        padded_size, padded_gates = (-(-n // pitch) * pitch for n in (size, 2 * num_chunks + 4 * size))
        self.table = torch.zeros(TABLE_SIZE, dtype=torch.int64, device=device)
        self.hidden = torch.zeros(batch_size, padded_size, dtype=product_dtype, device=device)
        self.gates = torch.zeros(batch_size, padded_gates, dtype=product_dtype, device=device)
        self.carried = torch.zeros(2, 2, batch_size, size, dtype=torch.float32, device=device)
        self._options = num_chunks, sequence_dtype == torch.bfloat16

    def forward_steps(self, num_steps: int) -> None:
        """Launches the next steps."""
        for offset in range(num_steps):
            torch.mm(self.hidden, self.weight.t(), out=self.gates)
            forward_step(self.table, self.gates, self.hidden, self.carried, offset, *self._options)
        self.table[:1].add_(num_steps)

    def backward_steps(self, num_steps: int) -> None:
        """Launches the next steps backwards in time."""
        for offset in range(num_steps):
            backward_step(self.table, self.gates, self.hidden, self.carried, offset, *self._options)
            torch.mm(self.gates, self.weight, out=self.hidden)
        self.table[:1].sub_(num_steps)


@functools.lru_cache(maxsize=MAX_KEPT_WORKSPACES)
def _kept_workspace(device, stream, float32_precision, *sizes_and_dtypes):
    """A workspace and the runs of its steps forward and backward, for all sequences of these sizes on one stream.

    Work on one stream is done in order, so the next sequence may use the buffers; recorded products keep the precision
    that was set for float32 when they were recorded.
    """
    with torch.inference_mode(False):  # buffers made in inference mode could not be written to outside of it
        workspace = _Workspace(device, *sizes_and_dtypes, pitch=PITCH)
        rows, columns = workspace.gates.shape[1], workspace.hidden.shape[1]
        workspace.weight = torch.zeros(rows, columns, dtype=workspace.gates.dtype, device=device)
    return workspace, StepGraphs(workspace.forward_steps, device).run, StepGraphs(workspace.backward_steps, device).run


def _workspace(length, cell, recurrent_weight, recurrent_scale, product_in_bfloat16, sequence_dtype):
    """A workspace that holds the weight, and the functions that run a number of its steps forward and backward."""
    device, product_dtype = cell.device, torch.bfloat16 if product_in_bfloat16 else torch.float32
    sizes_and_dtypes = *cell.shape, product_dtype, sequence_dtype
    on_gpu = device.type == "cuda"
    # A graph that someone else records must own all that it uses.
    if length < MIN_KEPT_LENGTH or (on_gpu and torch.cuda.is_current_stream_capturing()):
        workspace = _Workspace(device, *sizes_and_dtypes)
        weight = recurrent_weight if recurrent_scale == 1 else recurrent_weight * recurrent_scale
        workspace.weight = weight.to(product_dtype)
        return workspace, workspace.forward_steps, workspace.backward_steps
    stream = torch.cuda.current_stream(device) if on_gpu else None
    kept = _kept_workspace(device, stream, torch.backends.cuda.matmul.fp32_precision, *sizes_and_dtypes)
    workspace = kept[0]
    rows, columns = recurrent_weight.shape
    torch.mul(recurrent_weight, recurrent_scale, out=workspace.weight[:rows, :columns])
    # In the padding, what was not finite in another sequence must not stay.
    workspace.hidden.zero_()
    workspace.gates.zero_()
    return kept


# The launches of a sequence must not come between those of another that uses the same buffers: gradients are computed
# in threads of their own.
_launching = threading.Lock()


@torch.no_grad()
def forward(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None,
    recurrent_scale: float,
    product_in_bfloat16: bool,
    save_for_backward: bool,
) -> tuple[torch.Tensor, ...]:
    """See `FastPath.forward`."""
    length, batch_size, _ = input_gates.shape
    num_chunks, size = cell.shape[1], hidden.shape[1]
    saved_length = length if save_for_backward else 0
    empty = functools.partial(torch.empty, dtype=torch.float32, device=input_gates.device)
    outputs, distances = input_gates.new_empty(length, batch_size, size), empty(length, batch_size, 2)
    saved = (
        empty(saved_length, batch_size, size),
        empty(saved_length, batch_size, 2, num_chunks),
        empty(saved_length, batch_size, 4, size),
    )
    input_gates = input_gates.contiguous()
    mask = None if mask is None else mask.contiguous()

    with torch.cuda.device_of(input_gates), _launching:
        workspace, run, _ = _workspace(
            length, cell, recurrent_weight, recurrent_scale, product_in_bfloat16, input_gates.dtype
        )
        workspace.hidden[:, :size].copy_(hidden)
        workspace.carried[0, 0].copy_(cell.reshape(batch_size, size))
        workspace.carried[1, 0].copy_(hidden)
        places = saved if save_for_backward else (None, None, None)
        write_table(workspace.table, 0, [input_gates, outputs, distances, *places, mask])
        run(length)
        last_cell = workspace.carried[0, length % 2].view(cell.shape).clone()
    return outputs, last_cell, distances, *saved


@torch.no_grad()
def backward(
    grad_outputs: torch.Tensor | None,
    grad_last_cell: torch.Tensor | None,
    grad_distances: torch.Tensor | None,
    outputs: torch.Tensor,
    last_cell: torch.Tensor,
    cells: torch.Tensor,
    softmaxes: torch.Tensor,
    activations: torch.Tensor,
    recurrent_weight: torch.Tensor,
    mask: torch.Tensor | None,
    recurrent_scale: float,
    product_in_bfloat16: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `FastPath.backward`."""
    length, batch_size, size = cells.shape
    grad_gates = outputs.new_empty(length, batch_size, recurrent_weight.shape[0])
    inputs = [grad_outputs, grad_distances, cells, softmaxes, activations, last_cell, mask]
    *inputs, mask = [None if tensor is None else tensor.contiguous() for tensor in inputs]

    with torch.cuda.device_of(outputs), _launching:
        workspace, _, run = _workspace(
            length, last_cell, recurrent_weight, recurrent_scale, product_in_bfloat16, outputs.dtype
        )
        workspace.carried.zero_()
        if grad_last_cell is not None:
            workspace.carried[0, length % 2].copy_(grad_last_cell.reshape(batch_size, size))
        write_table(workspace.table, length - 1, [*inputs, length, mask, grad_gates])
        run(length)
        grad_cell, carried_hidden = workspace.carried[:, 0]
        grad_hidden, grad_cell = workspace.hidden[:, :size] + carried_hidden, grad_cell.view(last_cell.shape).clone()
    return grad_gates, grad_hidden, grad_cell


PATH = FastPath(forward, backward, obstacle, is_worthwhile=lambda sequence: obstacle(sequence) is None)
