"""The compiled CPU operator of the ordered-neurons recurrence (`csrc/onlstm.cpp`) as a fast path."""

import ctypes

import torch

from ..recurrence.fast_path import FastPath
from ..recurrence.native_library import NativeOperator
from .contract import Gradients, Inputs, Options, Trace

OPERATOR = NativeOperator("onlstm", interface=2)
# Packing the weight is worthwhile from this many steps.
MIN_LENGTH = 4


class _Sizes(ctypes.Structure):
    _fields_ = [
        ("length", ctypes.c_int64),
        ("batch_size", ctypes.c_int64),
        ("num_chunks", ctypes.c_int64),
        ("chunk_size", ctypes.c_int64),
        ("num_threads", ctypes.c_int32),
        ("sequence_is_bfloat16", ctypes.c_int32),
        ("product_is_bfloat16", ctypes.c_int32),
        ("recurrent_scale", ctypes.c_float),
    ]


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.empty(inputs, options)
    OPERATOR.call("forward", _sizes(trace, options), inputs, trace)
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    gradients = Gradients.empty(trace, inputs)
    read = [
        grad_trace.outputs, grad_trace.last_cell, grad_trace.distances, inputs.recurrent_weight, inputs.recurrent_mask,
        trace.last_cell, inputs.mask, trace.cells, trace.softmaxes, trace.activations,
    ]  # fmt: skip
    OPERATOR.call("backward", _sizes(trace, options), read, gradients)
    return gradients


def _sizes(trace: Trace, options: Options) -> _Sizes:
    return _Sizes(
        *trace.outputs.shape[:2],
        *trace.last_cell.shape[1:],
        torch.get_num_threads(),
        trace.outputs.dtype == torch.bfloat16,
        options.product_in_bfloat16,
        options.recurrent_scale,
    )


PATH = FastPath(
    forward, backward, OPERATOR.unsupported_reason, is_worthwhile=lambda sequence: len(sequence) >= MIN_LENGTH
)
