"""The ordered-neurons recurrence by the compiled CPU operator (`csrc/ordered_neurons.cpp`)."""

import ctypes
import functools

import torch

from ..fast_path import FastPath
from ..native_library import address, addresses, call, contiguous, find_library, obstacle_to

INTERFACE = 2
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


_Forward = addresses(
    "input_gates", "recurrent_weight", "recurrent_mask", "hidden", "cell", "mask", "outputs", "last_cell", "distances",
    "cells", "softmaxes", "activations",
)  # fmt: skip
_Backward = addresses(
    "grad_outputs", "grad_last_cell", "grad_distances", "recurrent_weight", "recurrent_mask", "last_cell", "mask",
    "cells", "softmaxes", "activations", "grad_gates", "grad_hidden", "grad_cell",
)  # fmt: skip


def load_library(instruction_set: str | None = None) -> ctypes.CDLL | None:
    """The library for this CPU (or that of one instruction set), `None` where there is none that runs."""
    return find_library("ordered_neurons", INTERFACE, instruction_set)


def is_worthwhile(sequence: torch.Tensor) -> bool:
    """Whether `"auto"` should choose this path: packing the weight pays from a few steps on."""
    return len(sequence) >= SHORTEST and obstacle(sequence) is None


def obstacle(sequence: torch.Tensor) -> str | None:
    """Why this path cannot run on these tensors, if it cannot."""
    return obstacle_to(load_library(), sequence)


def forward(
    input_gates: torch.Tensor,
    recurrent_weight: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    mask: torch.Tensor | None,
    recurrent_scale: float,
    product_in_bfloat16: bool,
    save_for_backward: bool,
    recurrent_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """See `FastPath.forward`."""
    length, batch_size, _ = input_gates.shape
    num_chunks, chunk_size = cell.shape[1:]
    size = num_chunks * chunk_size
    saved_length = length if save_for_backward else 0
    outputs = input_gates.new_empty(length, batch_size, size)
    new = functools.partial(input_gates.new_empty, dtype=torch.float32)
    last_cell, distances = new(cell.shape), new(length, batch_size, 2)
    cells, softmaxes = new(saved_length, batch_size, size), new(saved_length, batch_size, 2, num_chunks)
    activations = new(saved_length, batch_size, 4, size)
    inputs = contiguous(input_gates, recurrent_weight, recurrent_mask, hidden, cell, mask)
    arguments = _Forward(*map(address, [*inputs, outputs, last_cell, distances, cells, softmaxes, activations]))
    sizes = _sizes(input_gates, cell.shape, recurrent_scale, product_in_bfloat16)
    call(load_library().ordered_neurons_forward, sizes, arguments)
    return outputs, last_cell, distances, cells, softmaxes, activations


def backward(
    grad_outputs: torch.Tensor | None,
    grad_last_cell: torch.Tensor | None,
    grad_distances: torch.Tensor | None,
    outputs: torch.Tensor,
    last_cell: torch.Tensor,
    cells: torch.Tensor,
    softmaxes: torch.Tensor,
    activations: torch.Tensor,
    recurrent_weight: torch.Tensor,
    mask: torch.Tensor | None,
    recurrent_scale: float,
    product_in_bfloat16: bool,
    recurrent_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `FastPath.backward`."""
    grad_gates = outputs.new_empty(*outputs.shape[:2], recurrent_weight.shape[0])
    grad_hidden, grad_cell = torch.empty_like(cells[0]), torch.empty_like(last_cell)
    inputs = contiguous(
        grad_outputs, grad_last_cell, grad_distances, recurrent_weight, recurrent_mask, last_cell, mask, cells,
        softmaxes, activations,
    )  # fmt: skip
    arguments = _Backward(*map(address, [*inputs, grad_gates, grad_hidden, grad_cell]))
    sizes = _sizes(outputs, last_cell.shape, recurrent_scale, product_in_bfloat16)
    call(load_library().ordered_neurons_backward, sizes, arguments)
    return grad_gates, grad_hidden, grad_cell


def _sizes(
    sequence: torch.Tensor, cell_shape: torch.Size, recurrent_scale: float, product_in_bfloat16: bool
) -> _Sizes:
    return _Sizes(
        *sequence.shape[:2],
        *cell_shape[1:],
        torch.get_num_threads(),
        sequence.dtype == torch.bfloat16,
        product_in_bfloat16,
        recurrent_scale,
    )


PATH = FastPath(forward, backward, obstacle, is_worthwhile, takes_recurrent_mask=True)
