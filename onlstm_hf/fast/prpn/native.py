"""The compiled CPU operator of the reading network's recurrence (`csrc/prpn.cpp`) as a fast path."""

import ctypes

import torch

from ..recurrence.native_library import NativeOperator
from .contract import Gradients, Options, Trace


class _Sizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "batch_size", "num_slots", "size")),
        *((name, ctypes.c_int32) for name in ("num_threads", *Options._fields)),
    ]


def _sizes(trace: Trace, options: Options) -> _Sizes:
    batch_size, length, num_slots = trace.attentions.shape
    return _Sizes(length, batch_size, num_slots, trace.keys.shape[-1], torch.get_num_threads(), *options)


OPERATOR = NativeOperator("prpn", interface=3)
PATH = OPERATOR.path(Trace, Gradients, _sizes, time_dim=1)
