"""The ordered-neurons recurrence on a GPU: one matrix product and one Triton kernel per step, replayed as CUDA graphs.

The matrix library computes the product with the recurrent weight, on tensor cores in bfloat16 and if float32 may use
them. The kernels of `kernels.py` compute the rest of a step in float32.
"""

import torch

from ..recurrence.fast_path import HAS_TRITON, FastPath, unsupported_by_triton
from ..recurrence.operator import product_dtype
from ..recurrence.step_graphs import KeptBuffers, StepGraphs, is_capturing
from .contract import Gradients, Inputs, Options, Trace

if HAS_TRITON:
    from .kernels import Workspace

KEPT = KeptBuffers()


def _workspace(trace: Trace, inputs: Inputs, options: Options) -> tuple["Workspace", StepGraphs, StepGraphs]:
    """Returns a workspace with the weight, and what runs its steps forward and backward."""
    device = trace.outputs.device
    sizes_and_dtypes = *trace.last_cell.shape, product_dtype(options), trace.outputs.dtype

    def make() -> tuple["Workspace", StepGraphs, StepGraphs]:
        workspace = Workspace(device, *sizes_and_dtypes)
        runs = workspace.forward_steps, workspace.backward_steps
        return workspace, *(StepGraphs(run_steps, device, KEPT) for run_steps in runs)

    workspace, *graphs = make() if is_capturing(device) else KEPT.get(device, sizes_and_dtypes, make)
    rows, columns = inputs.recurrent_weight.shape
    weight = torch.mul(inputs.recurrent_weight, options.recurrent_scale, out=workspace.weight[:rows, :columns])
    if inputs.recurrent_mask is not None:
        weight.mul_(inputs.recurrent_mask)
    # Otherwise values of another sequence in the padding, such as NaN, would affect the products.
    workspace.hidden.zero_()
    workspace.gates.zero_()
    return workspace, *graphs


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.empty(inputs, options)
    length, batch_size, size = trace.outputs.shape
    input_gates, mask = _contiguous(inputs.input_gates, inputs.mask)
    with torch.cuda.device_of(input_gates), KEPT.launching:
        workspace, steps, _ = _workspace(trace, inputs, options)
        workspace.hidden[:, :size].copy_(inputs.hidden)
        workspace.carried[0, 0].copy_(inputs.cell.reshape(batch_size, size))
        workspace.carried[1, 0].copy_(inputs.hidden)
        written = trace.outputs, trace.distances, trace.cells, trace.softmaxes, trace.activations
        workspace.write_table(0, [input_gates, *written, mask])
        steps.run(length)
        trace.last_cell.copy_(workspace.carried[0, length % 2].view(trace.last_cell.shape))
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    length, batch_size, size = trace.cells.shape
    gradients = Gradients.empty(trace, inputs)
    *read, mask = _contiguous(
        grad_trace.outputs, grad_trace.distances, trace.cells, trace.softmaxes, trace.activations, trace.last_cell,
        inputs.mask,
    )  # fmt: skip
    with torch.cuda.device_of(trace.outputs), KEPT.launching:
        workspace, _, steps = _workspace(trace, inputs, options)
        workspace.carried.zero_()
        if grad_trace.last_cell is not None:
            workspace.carried[0, length % 2].copy_(grad_trace.last_cell.reshape(batch_size, size))
        workspace.write_table(length - 1, [*read, length, mask, gradients.input_gates])
        steps.run(length)
        grad_cell, carried_hidden = workspace.carried[:, 0]
        torch.add(workspace.hidden[:, :size], carried_hidden, out=gradients.hidden)
        gradients.cell.copy_(grad_cell.view(gradients.cell.shape))
    return gradients


def _contiguous(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Returns contiguous tensors, as the kernels need."""
    return [tensor if tensor is None else tensor.contiguous() for tensor in tensors]


PATH = FastPath(forward, backward, unsupported_by_triton)
