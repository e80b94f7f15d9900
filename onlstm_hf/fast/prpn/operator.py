"""The recurrence of the PRPN's reading network: an LSTM that attends to a tape of memories.

Shen, Lin, Huang & Courville (ICLR 2018), section 4.2; the cell is the LSTM of the Long Short-Term Memory-Network
(Cheng, Dong & Lapata 2016) with layer normalisation. `read_sequence` is the only entry point. Its fast paths, one file
each, have a hand-derived backward pass and are tested against the equations in `models/modeling_prpn.py`.

With `B` rows, `T` steps, `S` memory slots and `H` units, a tape `[B, S + T, H]` holds the `S` memories before the
first step, then one memory per step. Step `t` sees the window `[:, t : t + S]`. The `4 * H` columns of the gates are,
in this order: input gate, forget gate, cell candidate, output gate.
"""

import torch

from ..linear import linear
from ..recurrence.operator import Recurrence, multiplies_in_bfloat16, weight_gradient
from .contract import Gradients, Inputs, Options, Trace
from .native import PATH as NATIVE
from .triton import PATH as TRITON

# Fastest first, as `"auto"` takes the first suitable one.
_PATHS = {"native": NATIVE, "triton": TRITON}


def read_sequence(
    input_gates: torch.Tensor,
    key_inputs: torch.Tensor,
    weights: tuple[torch.Tensor, ...],
    gates: torch.Tensor,
    hidden_memories: torch.Tensor,
    cell_memories: torch.Tensor,
    newest_keep: torch.Tensor | None,
    key_keep: torch.Tensor | None,
    summary_keep: torch.Tensor | None,
    path: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs one layer of the reading network over a sequence.

    All steps are computed in float32, whatever the dtype of the weights; under bfloat16 autocast products with weights
    are in bfloat16. The paths cannot be differentiated twice.

    Args:
        input_gates, gates, newest_keep, key_keep: see `Inputs` in `contract.py`.
        key_inputs: `[B, T, I]`, the layer's input, as input of the key's map.
        weights: the key's map `[H, I + H]` of the layer's input and the newest hidden state, its bias `[H]`, and
            `recurrent` to `cell_bias` of `Inputs`.
        hidden_memories, cell_memories: `[B, S, H]`, the states before the first step, oldest first.
        summary_keep: `[H]`, dropout mask of the summarised hidden state for all steps and rows, or `None`.
        path: `"native"`, the compiled CPU operator, or `"triton"`, kernels on a GPU; `RECURRENCE.choose` returns a
            suitable one.

    Returns:
        The tapes of hidden and of cell states, `[B, S + T, H]` each, oldest first, and the attentions of each step to
        its window, `[B, T, S]`, without gradient.
    """
    key, key_bias, recurrent, *vectors = weights
    # The input's part of the keys is computed for all steps at once.
    of_input, of_newest = key.split([key_inputs.shape[-1], hidden_memories.shape[-1]], dim=1)
    input_keys = linear(key_inputs, of_input, key_bias)
    if summary_keep is not None:
        recurrent = recurrent * summary_keep
    memories = torch.stack([hidden_memories.float(), cell_memories.float()], dim=2)
    tensors = input_gates, input_keys, of_newest, recurrent, *vectors, gates, memories
    inputs = Inputs(*(tensor.float() for tensor in tensors), newest_keep, key_keep)
    device_type = input_gates.device.type
    options = Options(multiplies_in_bfloat16(device_type), memories_need_gradient=inputs.memories.requires_grad)
    with torch.autocast(device_type, enabled=False):
        tape, attentions, *_ = RECURRENCE.run(inputs, options, path)
    return *tape.unbind(2), attentions.detach()


class _MemoryReading(Recurrence):
    """The operator of `read_sequence`."""

    name = "read_sequence"
    Inputs, Options, Trace = Inputs, Options, Trace

    def empty_gradients(self, trace: Trace, inputs: Inputs) -> Inputs:
        gradients = Gradients.empty(trace, inputs)
        weights = inputs.key, inputs.recurrent, *[inputs.gates_gain] * 3, *[inputs.cell_gain] * 2
        of_steps = gradients.input_gates, gradients.input_keys
        return Inputs(*of_steps, *map(torch.empty_like, weights), gradients.gates, gradients.memories, None, None)

    def kept_inputs(self, inputs: Inputs) -> Inputs:
        unread = "input_gates", "input_keys", "recurrent_bias", "gates_bias", "cell_bias", "memories"
        return inputs._replace(**dict.fromkeys(unread))

    def input_gradients(self, gradients: Gradients, trace: Trace, inputs: Inputs, options: Options) -> Inputs:
        newest = trace.tape[:, inputs.gates.shape[-1] - 1 : -1, 0]
        if inputs.newest_keep is not None:
            newest = newest * inputs.newest_keep
        steps = (0, 1)
        return Inputs(
            input_gates=gradients.input_gates,
            input_keys=gradients.input_keys,
            key=weight_gradient(gradients.input_keys, newest, options),
            recurrent=weight_gradient(gradients.recurrent, trace.summaries[:, :, 0], options),
            recurrent_bias=gradients.recurrent.sum(steps),
            gates_gain=(gradients.input_gates * trace.normalized_gates).sum(steps),
            gates_bias=gradients.input_gates.sum(steps),
            cell_gain=(gradients.normalized_cells * trace.normalized_cells).sum(steps),
            cell_bias=gradients.normalized_cells.sum(steps),
            gates=gradients.gates,
            memories=gradients.memories,
            newest_keep=None,
            key_keep=None,
        )


RECURRENCE = _MemoryReading(__name__, _PATHS)
PATHS = tuple(_PATHS)
