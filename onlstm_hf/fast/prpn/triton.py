"""The reading network's recurrence on a GPU: two matrix products and two Triton kernels per step, as CUDA graphs.

The matrix library computes the products with the weights, the kernels of `kernels.py` the rest of a step. If a size of
sequences recurs, as in training, all its steps are recorded as one graph. Otherwise, as in parsing, steps are launched
one by one.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..recurrence.fast_path import HAS_TRITON, FastPath, unsupported_by_triton
from ..recurrence.operator import product_dtype, split_fields
from ..recurrence.step_graphs import KeptBuffers
from .contract import Gradients, Inputs, Options, Trace

if HAS_TRITON:
    from .kernels import backward_steps, forward_steps

Tensors = Sequence[torch.Tensor | None]
# Sizes are recorded after this many uses, because a recording takes as long as many runs.
RECORDED_AFTER = 3


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

    @classmethod
    def zeros(cls, trace: Trace, options: Options) -> "Work":
        (batch_size, _, size), dtype = trace.keys.shape, product_dtype(options)
        return cls(*(trace.keys.new_zeros(batch_size, width * size, dtype=dtype) for width in (1, 1, 1, 4)))


def _launch_forward(tensors: Tensors) -> None:
    forward_steps(*split_fields(tensors, Inputs, Trace, Work))


def _launch_backward(tensors: Tensors) -> None:
    backward_steps(*split_fields(tensors, Inputs, Trace, Trace, Gradients, Work))


class _Recording:
    """The steps of sequences of one size in one direction: first launched, later replayed on fixed buffers."""

    def __init__(self, launch: Callable[[Tensors], None]):
        self._launch, self._uses = launch, 0
        self._buffers: Tensors = []
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, read: Tensors, changed: Tensors) -> None:
        """Runs the steps on tensors that they only read, and on those that they change."""
        tensors = [*read, *changed]
        device = tensors[-1].device
        self._uses += 1
        if self.graph is None and self._uses > RECORDED_AFTER and KEPT.may_record(device):
            with torch.inference_mode(False):
                self._buffers = [None if tensor is None else torch.empty_like(tensor) for tensor in tensors]
            self.graph = KEPT.record(lambda: self._launch(self._buffers), device)
        if self.graph is None:
            self._launch(tensors)
            return
        pairs = list(zip(self._buffers, tensors, strict=True))
        for ours, theirs in pairs:
            if ours is not None:
                ours.copy_(theirs)
        self.graph.replay()
        for ours, theirs in pairs[len(read) :]:
            if ours is not None:
                theirs.copy_(ours)


KEPT = KeptBuffers()


def _run(launch: Callable[[Tensors], None], read: Tensors, changed: Tensors) -> None:
    """Launches or replays the steps of a sequence; see `_Recording.run`."""
    tensors = [*read, *changed]
    kinds = tuple(None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors)
    with torch.cuda.device_of(tensors[-1]), KEPT.launching:
        KEPT.get(tensors[-1].device, (launch, kinds), lambda: _Recording(launch)).run(read, changed)


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.empty(inputs, options)
    trace.tape[:, : inputs.gates.shape[-1]] = inputs.memories
    work = Work.zeros(trace, options)
    newest, keep = inputs.memories[:, -1, 0], inputs.newest_keep
    work.newest.copy_(newest if keep is None else newest * keep[:, 0])
    prepared = _prepared(inputs, options)
    prepared = prepared._replace(input_keys=prepared.input_keys / math.sqrt(len(inputs.key)))
    _run(_launch_forward, read=prepared, changed=[*trace, *work])
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    gradients, work = Gradients.empty(trace, inputs), Work.zeros(trace, options)
    grad_tape = torch.zeros_like(trace.tape) if grad_trace.tape is None else grad_trace.tape.contiguous()
    read = [*_prepared(inputs, options), *trace, *grad_trace._replace(tape=grad_tape)]
    _run(_launch_backward, read, changed=[*gradients._replace(memories=None), *work])
    gradients.input_keys.div_(math.sqrt(len(inputs.key)))
    if options.memories_need_gradient:
        _add_gradient_of_memories(gradients, trace)
        gradients.memories.add_(grad_tape[:, : inputs.gates.shape[-1]])
        keep = inputs.newest_keep
        gradients.memories[:, -1, 0] += work.newest if keep is None else work.newest * keep[:, 0]
    return gradients


def _add_gradient_of_memories(gradients: Gradients, trace: Trace) -> None:
    """Adds the gradient of the memories before the first step from the attention of the first steps."""
    num_slots = trace.attentions.shape[2]
    for step in range(min(num_slots, trace.keys.shape[1])):
        # Step t sees the memories t, ..., S - 1 in its slots 0, ..., S - 1 - t.
        seen = slice(0, num_slots - step)
        attention, score = trace.attentions[:, step, seen], gradients.scores[:, step, seen]
        gradients.memories[:, step:] += attention[:, :, None, None] * gradients.summaries[:, step, None]
        gradients.memories[:, step:, 0] += score.unsqueeze(-1) * trace.keys[:, step, None]


def _prepared(inputs: Inputs, options: Options) -> Inputs:
    """Returns the inputs as contiguous tensors, with the weights of products in the product's dtype.

    The key's map is divided by `sqrt(H)` instead of the scores. The memories are dropped, as they are in the tape.
    """
    dtype, key = product_dtype(options), inputs.key / math.sqrt(len(inputs.key))
    prepared = inputs._replace(key=key.to(dtype), recurrent=inputs.recurrent.to(dtype), memories=None)
    return Inputs(*(tensor if tensor is None else tensor.contiguous() for tensor in prepared))


PATH = FastPath(forward, backward, unsupported_by_triton)
