"""The reading network's recurrence by the compiled CPU operator (`csrc/memory_reading.cpp`)."""

import ctypes

import torch

from ..native_library import address, addresses, call, contiguous, find_library, obstacle_to
from .path import ReadingGradients, ReadingMasks, ReadingPath, ReadingTrace, StepWeights

INTERFACE = 1
# Steps from which on packing the weights pays.
SHORTEST = 4


class _Sizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "batch_size", "num_slots", "size", "num_kept")),
        *((name, ctypes.c_int32) for name in ("num_threads", "product_is_bfloat16")),
    ]


_MASKS = ("newest_keep", "key_keep", "kept_units")
_Forward = addresses(
    "input_gates", "input_keys", "key_weight", "recurrent_weight", "recurrent_bias", "gates_gain", "gates_bias",
    "cell_gain", "cell_bias", "gates", *_MASKS, *ReadingTrace._fields,
)  # fmt: skip
_Backward = addresses(
    "grad_tape", *ReadingTrace._fields, "key_weight", "recurrent_weight", "gates_gain", "cell_gain", "gates", *_MASKS,
    "grad_input_gates", "grad_keys", "grad_recurrent", "grad_parameters", "grad_gates", "grad_memories", "grad_scores",
    "grad_summaries",
)  # fmt: skip


def load_library(instruction_set: str | None = None) -> ctypes.CDLL | None:
    """The library for this CPU (or that of one instruction set), `None` where there is none that runs."""
    return find_library("memory_reading", INTERFACE, instruction_set)


def is_worthwhile(sequence: torch.Tensor) -> bool:
    """Whether `"auto"` should choose this path: packing the weights pays from a few steps on."""
    return sequence.shape[1] >= SHORTEST and obstacle(sequence) is None


def obstacle(sequence: torch.Tensor) -> str | None:
    """Why this path cannot run on these tensors, if it cannot."""
    return obstacle_to(load_library(), sequence)


def forward(
    input_gates: torch.Tensor,
    input_keys: torch.Tensor,
    weights: StepWeights,
    gates: torch.Tensor,
    masks: ReadingMasks,
    in_bfloat16: bool,
    trace: ReadingTrace,
) -> None:
    """See `ReadingPath.forward`."""
    tensors = contiguous(input_gates, input_keys, *weights, gates, *masks)
    arguments = _Forward(*map(address, [*tensors, *trace]))
    call(load_library().memory_reading_forward, _sizes(gates, weights, in_bfloat16), arguments)


def backward(
    grad_tape: torch.Tensor,
    trace: ReadingTrace,
    weights: StepWeights,
    gates: torch.Tensor,
    masks: ReadingMasks,
    in_bfloat16: bool,
    memories_need_gradient: bool,
) -> ReadingGradients:
    """See `ReadingPath.backward`."""
    tensors = contiguous(
        grad_tape, *trace, weights.key, weights.recurrent, weights.gates_gain, weights.cell_gain, gates, *masks
    )
    sizes = _sizes(gates, weights, in_bfloat16)
    size, num_slots = sizes.size, sizes.num_slots
    gradients = ReadingGradients(
        torch.empty_like(trace.normalized_gates),
        torch.empty_like(trace.keys),
        torch.empty_like(trace.normalized_gates),
        # Of all threads; to be added up.
        *gates.new_zeros(sizes.num_threads, 14 * size).split([4 * size] * 3 + [size] * 2, dim=1),
        torch.empty_like(gates, memory_format=torch.contiguous_format),
        torch.zeros_like(trace.tape[:, :num_slots], memory_format=torch.contiguous_format),
    )
    outputs = [
        gradients.input_gates, gradients.input_keys, gradients.recurrent, gradients.recurrent_bias, gradients.gates,
        gradients.memories if memories_need_gradient else None, torch.empty_like(gradients.gates),
        torch.empty_like(trace.summaries),
    ]  # fmt: skip
    call(load_library().memory_reading_backward, sizes, _Backward(*map(address, [*tensors, *outputs])))
    added_up = ("recurrent_bias", "gates_gain", "gates_bias", "cell_gain", "cell_bias")
    return gradients._replace(**{name: getattr(gradients, name).sum(0) for name in added_up})


def _sizes(gates: torch.Tensor, weights: StepWeights, in_bfloat16: bool) -> _Sizes:
    batch_size, length, num_slots = gates.shape
    size, num_kept = len(weights.key), weights.recurrent.shape[1]
    return _Sizes(length, batch_size, num_slots, size, num_kept, torch.get_num_threads(), in_bfloat16)


PATH = ReadingPath(forward, backward, obstacle, is_worthwhile)
