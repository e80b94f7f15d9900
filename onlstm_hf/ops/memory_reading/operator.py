"""The recurrence of the PRPN's reading network: an LSTM whose past is a tape of memories that it attends to.

Shen, Lin, Huang & Courville (ICLR 2018), section 4.2; the cell is the LSTM of the Long Short-Term Memory-Network
(Cheng, Dong & Lapata 2016) with layer normalisation. `read_sequence` is the one entrance. Behind it stand the readable
reference, which is the definition, and faster paths with a hand-derived backward pass, a file each, which are tested
against it.

With `B` rows, `T` steps, `S` memory slots and `H` units, a tape `[B, S + T, H]` begins with the `S` memories before
the first step and has one more for each step, oldest first: step `t` sees the window `[:, t : t + S]`. The `4 * H`
columns of the gates are, in this order: input gate, forget gate, cell candidate, output gate.
"""

import re
from functools import partial
from typing import NamedTuple

import torch

from ..fast_path import choose_path
from ..linear import linear, matmul
from .equations import ReadingWeights, reference
from .fused import PATH as FUSED
from .native import PATH as NATIVE
from .path import ReadingMasks, ReadingTrace, StepWeights

# From the fastest on.
_FAST_PATHS = {"native": NATIVE, "fused": FUSED}
IMPLEMENTATIONS = ("auto", "reference", *_FAST_PATHS)
# Operators are global: a second copy of this file, which came with a checkpoint, must not replace those of the first.
_OPERATORS = re.sub(r"\W", "_", __name__, flags=re.ASCII)


class ReadingOutput(NamedTuple):
    """What the recurrence of one layer returns.

    Attributes:
        hidden_tape: `[B, S + T, H]`, the given hidden states and those of every step, oldest first.
        cell_tape: the same for the cell states.
        attentions: `[B, T, S]`, how much each step takes of each memory of its window. Not differentiable.
    """

    hidden_tape: torch.Tensor
    cell_tape: torch.Tensor
    attentions: torch.Tensor


def read_sequence(
    input_gates: torch.Tensor,
    key_inputs: torch.Tensor,
    weights: ReadingWeights,
    gates: torch.Tensor,
    hidden_memories: torch.Tensor,
    cell_memories: torch.Tensor,
    newest_keep: torch.Tensor | None = None,
    key_keep: torch.Tensor | None = None,
    summary_keep: torch.Tensor | None = None,
    implementation: str = "auto",
) -> ReadingOutput:
    """Runs one layer of the reading network over a sequence.

    All steps are computed in float32 (float64 for float64 input), whatever the dtype of the weights; under bfloat16
    autocast products with weights are in bfloat16. The fast paths cannot be differentiated twice; the reference can.

    Args:
        input_gates: `[B, T, 4 * H]`, the normalised map of the layer's input to the gates.
        key_inputs: `[B, T, I]`, the layer's input where the key of the attention is made of it.
        weights: the layer's.
        gates: `[B, T, S]`, in [0, 1], how far each memory of a step's window is open, oldest first.
        hidden_memories: `[B, S, H]`, the hidden states before the first step, oldest first.
        cell_memories: `[B, S, H]`, the cell states before the first step.
        newest_keep: optional `[B, T, H]`, dropout mask of the newest hidden state where the key is made of it.
        key_keep: optional `[B, T, H]`, dropout mask of the key.
        summary_keep: optional `[H]`, dropout mask of the summarised hidden state, the same at every step and in every
            row.
        implementation: `"reference"`; `"fused"`, PyTorch operations without a graph over time, on any device;
            `"native"`, the compiled CPU operator; or `"auto"`, the fastest one that fits the tensors.

    Raises:
        ValueError: if the implementation is unknown, or the tensors do not fit it.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, not {implementation!r}")
    if implementation == "reference":
        run, for_keys = reference, key_inputs
    else:
        run = partial(_fast, implementation=implementation)
        # The input's part of the keys does not wait for the steps.
        of_input, of_newest = weights.key.split([key_inputs.shape[-1], hidden_memories.shape[-1]], dim=1)
        for_keys = linear(key_inputs, of_input, weights.key_bias)
        weights = StepWeights(of_newest, *weights[2:])
    dtype = torch.promote_types(input_gates.dtype, torch.float32)
    weights = weights._make(weight.to(dtype) for weight in weights)
    input_gates, for_keys, *others = (
        tensor.to(dtype) for tensor in (input_gates, for_keys, gates, hidden_memories, cell_memories)
    )
    return ReadingOutput(*run(input_gates, for_keys, weights, *others, newest_keep, key_keep, summary_keep))


def _fast(
    input_gates,
    input_keys,
    weights,
    gates,
    hidden_memories,
    cell_memories,
    newest_keep,
    key_keep,
    summary_keep,
    implementation,
):
    """One opaque operator for the whole sequence: no graph over time, a hand-derived backward pass."""
    device_type = input_gates.device.type
    in_bfloat16 = torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) == torch.bfloat16
    with torch.autocast(device_type, enabled=False):
        tape, attentions, *_ = _forward(
            input_gates,
            input_keys,
            *weights,
            gates,
            torch.stack([hidden_memories, cell_memories], dim=2),
            newest_keep,
            key_keep,
            summary_keep,
            in_bfloat16,
            implementation,
        )
    return *tape.unbind(2), attentions.detach()


@torch.library.custom_op(f"{_OPERATORS}::read_sequence_forward", mutates_args=())
def _forward(
    input_gates: torch.Tensor,
    input_keys: torch.Tensor,
    key_weight: torch.Tensor,
    recurrent_weight: torch.Tensor,
    recurrent_bias: torch.Tensor,
    gates_gain: torch.Tensor,
    gates_bias: torch.Tensor,
    cell_gain: torch.Tensor,
    cell_bias: torch.Tensor,
    gates: torch.Tensor,
    memories: torch.Tensor,
    newest_keep: torch.Tensor | None,
    key_keep: torch.Tensor | None,
    summary_keep: torch.Tensor | None,
    in_bfloat16: bool,
    implementation: str,
) -> list[torch.Tensor]:
    """The recurrence by one of the fast paths: a `ReadingTrace`."""
    kept_weight, kept_units = _without_dropped_units(recurrent_weight, summary_keep)
    weights = StepWeights(key_weight, kept_weight, recurrent_bias, gates_gain, gates_bias, cell_gain, cell_bias)
    trace = ReadingTrace.empty(input_gates, gates)
    trace.tape[:, : gates.shape[-1]] = memories
    masks = ReadingMasks(newest_keep, key_keep, kept_units)
    choose_path(_FAST_PATHS, implementation, input_gates).forward(
        input_gates, input_keys, weights, gates, masks, in_bfloat16, trace
    )
    return list(trace)


@_forward.register_fake
def _(input_gates, input_keys, key_weight, recurrent_weight, recurrent_bias, gates_gain, gates_bias, cell_gain,
      cell_bias, gates, *_):  # fmt: skip
    return list(ReadingTrace.empty(input_gates, gates))


def _without_dropped_units(
    weight: torch.Tensor, keep: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The map `weight` `[out, in]` of inputs that are multiplied with `keep` `[in]`, and which units remain of them.

    On a CPU the columns of dropped units are left out, and so is their part of every product. Elsewhere all stay
    (`None`), as the host would have to wait for the number of those that remain.
    """
    if keep is None:
        return weight, None
    if keep.device.type != "cpu":
        return weight * keep, None
    units = keep.nonzero().squeeze(-1)
    return weight.index_select(1, units).mul_(keep[units]), units


@torch.library.custom_op(f"{_OPERATORS}::read_sequence_backward", mutates_args=())
def _backward(
    grad_tape: torch.Tensor,
    trace: list[torch.Tensor],
    key_weight: torch.Tensor,
    recurrent_weight: torch.Tensor,
    gates_gain: torch.Tensor,
    cell_gain: torch.Tensor,
    gates: torch.Tensor,
    newest_keep: torch.Tensor | None,
    key_keep: torch.Tensor | None,
    summary_keep: torch.Tensor | None,
    in_bfloat16: bool,
    implementation: str,
    memories_need_gradient: bool,
) -> list[torch.Tensor]:
    """Gradients of the first eleven arguments of `_forward`, in their order, by one of the fast paths. The gradient of
    each weight is one product over all steps."""
    kept_weight, kept_units = _without_dropped_units(recurrent_weight, summary_keep)
    weights = StepWeights(key_weight, kept_weight, None, gates_gain, None, cell_gain, None)
    trace, masks = ReadingTrace(*trace), ReadingMasks(newest_keep, key_keep, kept_units)
    gradients = choose_path(_FAST_PATHS, implementation, trace.keys).backward(
        grad_tape, trace, weights, gates, masks, in_bfloat16, memories_need_gradient
    )

    newest, summaries = trace.tape[:, gates.shape[-1] - 1 : -1, 0], trace.summaries[:, :, 0]
    if newest_keep is not None:
        newest = newest * newest_keep
    if summary_keep is not None:
        summaries = summaries * summary_keep
    grad_key_weight = _weight_gradient(gradients.input_keys, newest, in_bfloat16)
    if kept_units is None:
        grad_weight = _weight_gradient(gradients.recurrent, summaries, in_bfloat16)
    else:
        grad_kept = _weight_gradient(gradients.recurrent, summaries.index_select(-1, kept_units), in_bfloat16)
        grad_weight = torch.zeros_like(recurrent_weight).index_copy_(1, kept_units, grad_kept)
    return [
        gradients.input_gates,
        gradients.input_keys,
        grad_key_weight,
        grad_weight,
        gradients.recurrent_bias,
        gradients.gates_gain,
        gradients.gates_bias,
        gradients.cell_gain,
        gradients.cell_bias,
        gradients.gates,
        gradients.memories,
    ]


def _weight_gradient(gradient: torch.Tensor, inputs: torch.Tensor, in_bfloat16: bool) -> torch.Tensor:
    gradient, inputs = gradient.flatten(0, 1), inputs.flatten(0, 1)
    if in_bfloat16:
        return (gradient.to(torch.bfloat16).t() @ inputs.to(torch.bfloat16)).to(gradient.dtype)
    return matmul(gradient.t(), inputs)


@_backward.register_fake
def _(grad_tape, trace, key_weight, recurrent_weight, gates_gain, cell_gain, gates, *_):
    trace = ReadingTrace(*trace)
    return [
        torch.empty_like(trace.normalized_gates),
        torch.empty_like(trace.keys),
        torch.empty_like(key_weight),
        torch.empty_like(recurrent_weight),
        gates_gain.new_empty(len(gates_gain)),
        torch.empty_like(gates_gain),
        torch.empty_like(gates_gain),
        torch.empty_like(cell_gain),
        torch.empty_like(cell_gain),
        torch.empty_like(gates),
        torch.empty_like(trace.tape[:, : gates.shape[-1]]),
    ]


def _save_for_backward(ctx, inputs, output):
    _, _, key_weight, recurrent_weight, _, gates_gain, _, cell_gain, _, gates, _, *masks, in_bfloat16, path = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, key_weight, recurrent_weight, gates_gain, cell_gain, gates, *masks)
    ctx.options = in_bfloat16, path


def _differentiate(ctx, grad_outputs):
    memories_need_gradient = ctx.needs_input_grad[10]
    num_traced = len(ReadingTrace._fields)
    trace, others = list(ctx.saved_tensors[:num_traced]), ctx.saved_tensors[num_traced:]
    grad_tape = torch.zeros_like(trace[0]) if grad_outputs[0] is None else grad_outputs[0]
    gradients = _backward(grad_tape, trace, *others, *ctx.options, memories_need_gradient)
    return *gradients, *[None] * 5


_forward.register_autograd(_differentiate, setup_context=_save_for_backward)
