"""The reading network's recurrence on a GPU: two matrix products and two Triton kernels per step, as CUDA graphs.

The matrix library computes the products with the weights, the kernels of `kernels.py` the rest of a step. If a size of
sequences recurs, as in training, all its steps are recorded as one graph. Otherwise, as in parsing, steps are launched
one by one.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..recurrence.fast_path import FastPath
from ..recurrence.gpu import HAS_TRITON, unsupported_reason
from ..recurrence.operator import split_fields
from ..recurrence.step_graphs import KeptBuffers
from .contract import Gradients, Inputs, Options, Trace

if HAS_TRITON:
    from .kernels import attention_backward_step, attention_step, cell_backward_step, cell_step

Tensors = Sequence[torch.Tensor | None]
# Sizes are recorded after this many uses, because a recording takes as long as many runs.
RECORDED_AFTER = 3


class BackwardBuffers(NamedTuple):
    """Gradients that the steps compute backward in time.

    Attributes:
        tape: `[B, S + T, 2, H]`, the given gradient of the tape; only read.
        scores: `[B, T, S]`, of the attention's scores.
        gates: `[B, T, S]`.
        keys: `[B, T, H]`, of the keys divided by `sqrt(H)`.
        summaries: `[B, T, 2, H]`.
        activations: `[B, T, 4, H]`, of the gates before their nonlinearities.
        recurrent: `[B, T, 4 * H]`, of the map of the summaries, before its normalisation.
        normalized_cells: `[B, T, H]`, of the normalised cells after gain and bias.
    """

    tape: torch.Tensor
    scores: torch.Tensor
    gates: torch.Tensor
    keys: torch.Tensor
    summaries: torch.Tensor
    activations: torch.Tensor
    recurrent: torch.Tensor
    normalized_cells: torch.Tensor


class Work(NamedTuple):
    """Operands and results of the products of one step, or their gradients, in the product's dtype.

    Attributes:
        newest: `[B, H]`, the newest memory's hidden state, times its mask.
        key: `[B, H]`, its part of the key.
        summary: `[B, H]`, the summary of the hidden states.
        recurrent: `[B, 4 * H]`, the summary's map to the gates.
    """

    newest: torch.Tensor
    key: torch.Tensor
    summary: torch.Tensor
    recurrent: torch.Tensor


def _forward_steps(inputs: Inputs, trace: Trace, work: Work) -> None:
    """Fills the trace, whose tape starts with the memories. `inputs` come from `_prepared`."""
    for step in range(inputs.gates.shape[1]):
        torch.mm(work.newest, inputs.key.t(), out=work.key)
        attention_step(step, inputs, work.key, trace, work.summary)
        torch.mm(work.summary, inputs.recurrent.t(), out=work.recurrent)
        cell_step(step, inputs, work.recurrent, trace, work.newest)


def _backward_steps(inputs: Inputs, trace: Trace, buffers: BackwardBuffers, work: Work) -> None:
    """Fills the buffers. `work.newest` ends as the gradient of the memory before the first step, from its key."""
    for step in reversed(range(inputs.gates.shape[1])):
        cell_backward_step(step, inputs, work.newest, trace, buffers, work.recurrent)
        torch.mm(work.recurrent, inputs.recurrent, out=work.summary)
        attention_backward_step(step, inputs, work.summary, trace, buffers, work.key)
        torch.mm(work.key, inputs.key, out=work.newest)


class _Recording:
    """The steps of sequences of one size in one direction: first launched, later replayed on fixed buffers.

    Args:
        launch: `launch(tensors)` launches the steps on tensors of these sizes, without allocating memory.
    """

    def __init__(self, launch: Callable[[Tensors], None]):
        self._launch, self._uses = launch, 0
        self._buffers: Tensors = []
        self._graph = None

    @property
    def is_recorded(self) -> bool:
        return self._graph is not None

    def run(self, read: Tensors, changed: Tensors, written: Tensors) -> None:
        """Runs the steps on tensors that they only read, read and change, or only write."""
        tensors = [*read, *changed, *written]
        self._uses += 1
        if not self.is_recorded and self._uses > RECORDED_AFTER:
            self._record(tensors)
        if not self.is_recorded:
            self._launch(tensors)
            return
        num_given, num_read = len(read) + len(changed), len(read)
        for ours, theirs in zip(self._buffers[:num_given], tensors[:num_given], strict=True):
            if theirs is not None:
                ours.copy_(theirs)
        self._graph.replay()
        for ours, theirs in zip(self._buffers[num_read:], tensors[num_read:], strict=True):
            theirs.copy_(ours)

    def _record(self, tensors: Tensors) -> None:
        device = tensors[-1].device
        # A CUDA graph that the caller records must own all memory that it uses.
        is_recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if KEPT.recorder.may_record(device) and not is_recording:
            with torch.inference_mode(False):
                self._buffers = [None if tensor is None else torch.empty_like(tensor) for tensor in tensors]
            self._graph = KEPT.recorder.record(lambda: self._launch(self._buffers), device)


KEPT = KeptBuffers()


def _run(launch: Callable[[Tensors], None], read: Tensors, changed: Tensors = (), written: Tensors = ()) -> None:
    """Launches or replays the steps of a sequence; see `_Recording.run`."""
    tensors = [*read, *changed, *written]
    device = tensors[-1].device
    kinds = tuple(None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors)
    with torch.cuda.device_of(tensors[-1]), KEPT.launching:
        KEPT.get(device, (launch, kinds), lambda: _Recording(launch)).run(read, changed, written)


def _launch_forward(tensors: Tensors) -> None:
    _forward_steps(*split_fields(tensors, Inputs, Trace, Work))


def _launch_backward(tensors: Tensors) -> None:
    _backward_steps(*split_fields(tensors, Inputs, Trace, BackwardBuffers, Work))


@torch.no_grad()
def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.begin(inputs)
    batch_size, length, num_slots = inputs.gates.shape
    size = trace.keys.shape[-1]
    dtype, keep = _product_dtype(options), inputs.newest_keep
    prepared = _prepared(inputs, options)
    prepared = prepared._replace(input_keys=prepared.input_keys / math.sqrt(size))
    newest = trace.tape[:, num_slots - 1, 0]
    work = Work(
        (newest if keep is None else newest * keep[:, 0]).to(dtype, copy=True).contiguous(),
        *(trace.keys.new_empty(batch_size, width * size, dtype=dtype) for width in (1, 1, 4)),
    )
    _run(_launch_forward, read=prepared, changed=[*trace, *work])
    return trace


@torch.no_grad()
def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    batch_size, length, num_slots = inputs.gates.shape
    size = trace.keys.shape[-1]
    prepared = _prepared(inputs, options)
    buffers = BackwardBuffers(
        torch.zeros_like(trace.tape) if grad_trace.tape is None else grad_trace.tape.contiguous(),
        *(torch.empty_like(prepared.gates) for _ in range(2)),
        torch.empty_like(trace.keys),
        torch.empty_like(trace.summaries),
        torch.empty_like(trace.activations),
        torch.empty_like(trace.normalized_gates),
        torch.empty_like(trace.keys),
    )
    dtype = _product_dtype(options)
    work = Work(*(trace.keys.new_zeros(batch_size, width * size, dtype=dtype) for width in (1, 1, 1, 4)))
    _run(_launch_backward, read=[*prepared, *trace, buffers.tape], written=[*buffers[1:], *work])

    grad_input_gates = buffers.activations.flatten(2)
    grad_memories = torch.zeros_like(trace.tape[:, :num_slots])
    if options.memories_need_gradient:
        _add_gradient_of_memories(grad_memories, trace, buffers)
        grad_memories += buffers.tape[:, :num_slots]
        newest, keep = work.newest.to(grad_memories.dtype), inputs.newest_keep
        grad_memories[:, -1, 0] += newest if keep is None else newest * keep[:, 0]
    return Gradients(
        grad_input_gates,
        buffers.keys / math.sqrt(size),
        buffers.recurrent,
        buffers.recurrent.sum(dim=(0, 1)),
        (grad_input_gates * trace.normalized_gates).sum(dim=(0, 1)),
        grad_input_gates.sum(dim=(0, 1)),
        (buffers.normalized_cells * trace.normalized_cells).sum(dim=(0, 1)),
        buffers.normalized_cells.sum(dim=(0, 1)),
        buffers.gates,
        grad_memories,
    )


def _add_gradient_of_memories(grad_memories: torch.Tensor, trace: Trace, buffers: BackwardBuffers) -> None:
    """Adds the gradient of the memories before the first step from the attention of the first steps.

    Args:
        grad_memories: `[B, S, 2, H]`.
        trace, buffers: of the sequence.
    """
    num_slots = trace.attentions.shape[2]
    for step in range(min(num_slots, trace.keys.shape[1])):
        # Step t sees the memories t, ..., S - 1 in its slots 0, ..., S - 1 - t.
        seen = slice(0, num_slots - step)
        attention, score = trace.attentions[:, step, seen], buffers.scores[:, step, seen]
        grad_memories[:, step:] += attention[:, :, None, None] * buffers.summaries[:, step, None]
        grad_memories[:, step:, 0] += score.unsqueeze(-1) * trace.keys[:, step, None]


def _prepared(inputs: Inputs, options: Options) -> Inputs:
    """Returns the inputs as contiguous tensors, with the weights of products in the product's dtype.

    The key's map is divided by `sqrt(H)` instead of the scores. The recurrent map includes the mask of the summaries.
    The memories are dropped, as they are in the tape.
    """
    dtype = _product_dtype(options)
    key, recurrent = inputs.key / math.sqrt(len(inputs.key)), inputs.masked_recurrent_weight
    prepared = inputs._replace(key=key.to(dtype), recurrent=recurrent.to(dtype), summary_keep=None, memories=None)
    return Inputs(*(tensor if tensor is None else tensor.contiguous() for tensor in prepared))


def _product_dtype(options: Options) -> torch.dtype:
    return torch.bfloat16 if options.product_in_bfloat16 else torch.float32


PATH = FastPath(forward, backward, unsupported_reason)
