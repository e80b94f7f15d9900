"""The compiled CPU operator of the ordered-neurons recurrence (`csrc/onlstm.cpp`) as a fast path."""

import ctypes

import torch

from ..recurrence.native_library import NativeOperator
from .contract import Gradients, Options, Trace


class _Sizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "batch_size", "num_chunks", "chunk_size")),
        *((name, ctypes.c_int32) for name in ("num_threads", "sequence_is_bfloat16", "product_is_bfloat16")),
        ("recurrent_scale", ctypes.c_float),
    ]


def _sizes(trace: Trace, options: Options) -> _Sizes:
    return _Sizes(
        *trace.outputs.shape[:2],
        *trace.last_cell.shape[1:],
        torch.get_num_threads(),
        trace.outputs.dtype == torch.bfloat16,
        options.product_in_bfloat16,
        options.recurrent_scale,
    )


OPERATOR = NativeOperator("onlstm", interface=4)
PATH = OPERATOR.path(Trace, Gradients, _sizes, time_dim=0)
