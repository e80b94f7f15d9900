"""The ordered-neurons recurrence by the compiled CPU operator (`csrc/ordered_neurons.cpp`)."""

import ctypes

import torch

from ..fast_path import FastPath
from ..native_library import NativeOperator, addresses
from ..tensor_tuples import named
from .contract import Gradients, Inputs, Options, Trace

OPERATOR = NativeOperator("ordered_neurons", interface=2)
# Steps from which on packing the weight pays.
SHORTEST = 4


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


# In the order of the structures of the C++ file.
_Forward = addresses(*Inputs._fields, *Trace._fields)
_Backward = addresses(
    "grad_outputs", "grad_last_cell", "grad_distances", "recurrent_weight", "recurrent_mask", "last_cell", "mask",
    "cells", "softmaxes", "activations", "grad_input_gates", "grad_hidden", "grad_cell",
)  # fmt: skip


def is_worthwhile(sequence: torch.Tensor) -> bool:
    """Whether `"auto"` should choose this path: packing the weight pays from a few steps on."""
    return len(sequence) >= SHORTEST and OPERATOR.obstacle(sequence) is None


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.empty(inputs, options)
    OPERATOR.call("forward", _sizes(trace, options), _Forward, named(inputs), named(trace))
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    gradients = Gradients.empty(trace, inputs)
    read = named(grad_trace, "grad_") | named(trace) | named(inputs)
    OPERATOR.call("backward", _sizes(trace, options), _Backward, read, named(gradients, "grad_"))
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


PATH = FastPath(forward, backward, OPERATOR.obstacle, is_worthwhile)
