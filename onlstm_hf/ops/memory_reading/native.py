"""The reading network's recurrence by the compiled CPU operator (`csrc/memory_reading.cpp`)."""

import ctypes

import torch

from ..fast_path import FastPath
from ..native_library import NativeOperator, addresses
from ..tensor_tuples import flat_fields, named
from .contract import Gradients, Inputs, Options, StepWeights, Trace

OPERATOR = NativeOperator("memory_reading", interface=1)
# Steps from which on packing the weights pays.
SHORTEST = 4


class _Sizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "batch_size", "num_slots", "size", "num_kept")),
        *((name, ctypes.c_int32) for name in ("num_threads", "product_is_bfloat16")),
    ]


# In the order of the structures of the C++ file, where the recurrent map has the columns of the kept units alone.
_MASKS = ("masks_newest", "masks_key", "kept_units")
_Forward = addresses(
    "input_gates", "input_keys", *flat_fields(StepWeights, "weights_"), "gates", *_MASKS, *Trace._fields
)  # fmt: skip
_Backward = addresses(
    "grad_tape", *Trace._fields, "weights_key", "weights_recurrent", "weights_gates_gain", "weights_cell_gain",
    "gates", *_MASKS, "grad_input_gates", "grad_input_keys", "grad_recurrent", "grad_parameters", "grad_gates",
    "grad_memories", "grad_scores", "grad_summaries",
)  # fmt: skip


def is_worthwhile(sequence: torch.Tensor) -> bool:
    """Whether `"auto"` should choose this path: packing the weights pays from a few steps on."""
    return sequence.shape[1] >= SHORTEST and OPERATOR.obstacle(sequence) is None


def forward(inputs: Inputs, options: Options) -> Trace:
    """See `FastPath.forward`."""
    trace = Trace.empty(inputs)
    sizes, read = _sizes_and_tensors(inputs, options)
    OPERATOR.call("forward", sizes, _Forward, read, named(trace))
    return trace


def backward(grad_trace: Trace, trace: Trace, inputs: Inputs, options: Options) -> Gradients:
    """See `FastPath.backward`."""
    sizes, read = _sizes_and_tensors(inputs, options)
    read |= named(trace)
    read["grad_tape"] = torch.zeros_like(trace.tape) if grad_trace.tape is None else grad_trace.tape
    size, num_slots = sizes.size, sizes.num_slots
    # What every thread adds up for itself: the gradients of the five vectors of parameters.
    of_threads = inputs.gates.new_zeros(sizes.num_threads, 14 * size)
    grad_gates = torch.empty_like(inputs.gates, memory_format=torch.contiguous_format)
    written = {
        "grad_input_gates": torch.empty_like(trace.normalized_gates),
        "grad_input_keys": torch.empty_like(trace.keys),
        "grad_recurrent": torch.empty_like(trace.normalized_gates),
        "grad_parameters": of_threads,
        "grad_gates": grad_gates,
        "grad_memories": torch.zeros_like(trace.tape[:, :num_slots], memory_format=torch.contiguous_format),
        "grad_scores": torch.empty_like(grad_gates),
        "grad_summaries": torch.empty_like(trace.summaries),
    }
    given = written if options.memories_need_gradient else written | {"grad_memories": None}
    OPERATOR.call("backward", sizes, _Backward, read, given)
    return Gradients(
        written["grad_input_gates"],
        written["grad_input_keys"],
        written["grad_recurrent"],
        *(part.sum(0) for part in of_threads.split([4 * size] * 3 + [size] * 2, dim=1)),
        grad_gates,
        written["grad_memories"],
    )


def _sizes_and_tensors(inputs: Inputs, options: Options) -> tuple[_Sizes, dict[str, torch.Tensor | None]]:
    batch_size, length, num_slots = inputs.gates.shape
    kept_units = inputs.kept_units
    recurrent = inputs.recurrent_of(kept_units)
    size, num_kept = len(inputs.weights.key), recurrent.shape[1]
    threads = torch.get_num_threads()
    sizes = _Sizes(length, batch_size, num_slots, size, num_kept, threads, options.product_in_bfloat16)
    return sizes, named(inputs) | {"weights_recurrent": recurrent, "kept_units": kept_units}


PATH = FastPath(forward, backward, OPERATOR.obstacle, is_worthwhile)
