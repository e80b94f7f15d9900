"""The compiled CPU operator of the reading network's recurrence (`csrc/prpn.cpp`) as a fast path."""

import ctypes

import torch

from ..recurrence.fast_path import FastPath
from ..recurrence.native_library import NativeOperator
from .contract import Gradients, Inputs, Options, Trace

OPERATOR = NativeOperator("prpn", interface=2)
# Packing the weights is worthwhile from this many steps.
MIN_LENGTH = 4


class _Sizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "batch_size", "num_slots", "size")),
        *((name, ctypes.c_int32) for name in ("num_threads", "product_is_bfloat16")),
    ]


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.begin(inputs)
    read = [
        inputs.input_gates, inputs.input_keys, inputs.key, inputs.masked_recurrent_weight, inputs.recurrent_bias,
        inputs.gates_gain, inputs.gates_bias, inputs.cell_gain, inputs.cell_bias, inputs.gates, inputs.newest_keep,
        inputs.key_keep,
    ]  # fmt: skip
    OPERATOR.call("forward", _sizes(inputs, options), read, trace)
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    sizes = _sizes(inputs, options)
    size, num_slots = sizes.size, sizes.num_slots
    # Every thread sums its own gradients of the five parameter vectors.
    per_thread = inputs.gates.new_zeros(sizes.num_threads, 14 * size)
    gradients = Gradients(
        torch.empty_like(trace.normalized_gates),
        torch.empty_like(trace.keys),
        torch.empty_like(trace.normalized_gates),
        *per_thread.split([4 * size] * 3 + [size] * 2, dim=1),
        torch.empty_like(inputs.gates, memory_format=torch.contiguous_format),
        torch.zeros_like(trace.tape[:, :num_slots], memory_format=torch.contiguous_format),
    )
    grad_tape = torch.zeros_like(trace.tape) if grad_trace.tape is None else grad_trace.tape
    read = [
        grad_tape, *trace, inputs.key, inputs.masked_recurrent_weight, inputs.gates_gain, inputs.cell_gain,
        inputs.gates, inputs.newest_keep, inputs.key_keep,
    ]  # fmt: skip
    written = [
        gradients.input_gates, gradients.input_keys, gradients.recurrent, per_thread, gradients.gates,
        gradients.memories if options.memories_need_gradient else None, torch.empty_like(gradients.gates),
        torch.empty_like(trace.summaries),
    ]  # fmt: skip
    OPERATOR.call("backward", sizes, read, written)
    vectors = ("recurrent_bias", "gates_gain", "gates_bias", "cell_gain", "cell_bias")
    return gradients._replace(**{name: getattr(gradients, name).sum(0) for name in vectors})


def _sizes(inputs: Inputs, options: Options) -> _Sizes:
    batch_size, length, num_slots = inputs.gates.shape
    size, threads = len(inputs.key), torch.get_num_threads()
    return _Sizes(length, batch_size, num_slots, size, threads, options.product_in_bfloat16)


PATH = FastPath(
    forward, backward, OPERATOR.unsupported_reason, is_worthwhile=lambda sequence: sequence.shape[1] >= MIN_LENGTH
)
