"""The optimisations of this package that can be switched off one at a time, and what does the same in their place."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.nn import functional as F

from onlstm_hf.fast import dropout, linear, structured_attention, vocabulary_loss
from onlstm_hf.fast.onlstm.contract import Inputs
from onlstm_hf.fast.onlstm.native import PATH as NATIVE
from onlstm_hf.fast.onlstm.operator import RECURRENCE, ordered_neurons
from onlstm_hf.fast.recurrence.fast_path import FastPath
from onlstm_hf.models import modeling_onlstm, modeling_prpn
from onlstm_hf.models.recurrent import language_model

MODELS, PRECISIONS = ("onlstm", "prpn", "lstm"), ("bf16", "float32")


class Case(NamedTuple):
    """What is measured.

    Attributes:
        model: its released model, or the recipe of that.
        precision: "float32" or "bf16".
        parses: parsing rather than a training step.
    """

    model: str
    precision: str
    parses: bool = False

    def __str__(self) -> str:
        return f"{'parsing' if self.parses else 'training'} {self.model} {self.precision}"


CASES = {
    str(case): case
    for case in (
        *(Case(model, precision) for model in MODELS for precision in PRECISIONS),
        *(Case(model, "float32", parses=True) for model in ("onlstm", "prpn")),
    )
}


class Ablation(NamedTuple):
    """An optimisation, and how to do without it.

    Attributes:
        replacements: what to replace: its owner, its name there, and what does the same in its place.
        models, precisions: of the cases that use it.
        parsing: whether parsing uses it too.
    """

    replacements: Sequence[tuple[Any, str, Any]]
    models: Sequence[str] = MODELS
    precisions: Sequence[str] = PRECISIONS
    parsing: bool = False

    def applies_to(self, case: Case) -> bool:
        return case.model in self.models and case.precision in self.precisions and self.parsing >= case.parses

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        with ExitStack() as stack:
            for replacement in self.replacements:
                stack.enter_context(mock.patch.object(*replacement))
            yield


def _loss_by_pytorch(hidden_states, weight, bias, shift_labels, num_items_in_batch, log_priors=None):
    """`projected_next_token_loss` by PyTorch's function that computes logits in blocks (from 2.13 on)."""
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else hidden_states.dtype
    with torch.autocast("cpu", enabled=False):
        total = F.linear_cross_entropy(
            hidden_states.flatten(0, 1).to(dtype),
            weight.to(dtype),
            shift_labels.flatten(),
            linear_bias=bias.to(dtype),
            reduction="sum",
            options=torch.nn.LinearCrossEntropyOptions(),
        )
    return total.float() / num_items_in_batch


def _loss_of_logits(hidden_states, weight, bias, shift_labels, num_items_in_batch, log_priors=None):
    """`projected_next_token_loss` by PyTorch's cross-entropy of all logits."""
    logits = linear.linear(hidden_states, weight, bias)
    return vocabulary_loss.next_token_loss(logits, shift_labels, num_items_in_batch)


def _recurrence_of_masked_weight(input_gates, weight, *others, recurrent_scale, recurrent_mask):
    """`ordered_neurons` of what drop-connect leaves of the weight."""
    weight = weight * (recurrent_scale if recurrent_mask is None else recurrent_mask)
    return ordered_neurons(input_gates, weight, *others)


def _masking_before_each_pass(path: FastPath) -> FastPath:
    """A fast path of `ordered_neurons` that never sees drop-connect's mask, but the weight that it leaves."""

    def kept(inputs: Inputs) -> Inputs:
        return inputs._replace(recurrent_weight=inputs.kept_weight, recurrent_mask=None)

    return path._replace(
        forward=lambda inputs, options: path.forward(kept(inputs), options),
        backward=lambda grad_trace, trace, inputs, options: path.backward(grad_trace, trace, kept(inputs), options),
    )


def _attend_to_copied_windows(keys, tape, gates):
    """`attend_to_windows` by the definition: a window of the tape for each step."""
    windows = tape.unfold(1, gates.shape[-1], 1)[:, : keys.shape[1]]
    scores = (keys.unsqueeze(2) @ windows).squeeze(2) / math.sqrt(keys.shape[-1])
    attention = structured_attention.attend(scores.to(gates.dtype), gates)
    return (windows @ attention.unsqueeze(-1)).squeeze(-1), attention


def _kept_by_bernoulli(shape, probability, device, dtype=torch.bool):
    """`kept_entries` by PyTorch's function."""
    return torch.empty(shape, dtype=dtype, device=device).bernoulli_(1 - probability)


_LOSS = language_model, "projected_next_token_loss"
RANDOM_BITS = "masks of sixteen random bits"
KEPT_MEMORY = "freed memory is kept"
ABLATIONS = {
    "nothing: how exact this is": Ablation([], parsing=True),
    "products by oneDNN": Ablation(
        [(linear, "uses_onednn", lambda *tensors: False)], precisions=["float32"], parsing=True
    ),
    "projected loss in blocks of rows": Ablation([(vocabulary_loss, "_BYTES_PER_PRODUCT", 1 << 60)]),
    "projected loss, not linear_cross_entropy": Ablation([(*_LOSS, _loss_by_pytorch)]),
    "projected loss, not F.cross_entropy of logits": Ablation([(*_LOSS, _loss_of_logits)]),
    "drop-connect in the operator, not before it": Ablation(
        [(modeling_onlstm, "ordered_neurons", _recurrence_of_masked_weight)], ["onlstm"]
    ),
    "drop-connect in the operator, not before each of its passes": Ablation(
        [(RECURRENCE, "paths", RECURRENCE.paths | {"native": _masking_before_each_pass(NATIVE)})], ["onlstm"]
    ),
    RANDOM_BITS: Ablation([(dropout, "kept_entries", _kept_by_bernoulli)]),
    "attention to a band of all pairs": Ablation(
        [(modeling_prpn, "attend_to_windows", _attend_to_copied_windows)], ["prpn"]
    ),
    KEPT_MEMORY: Ablation([]),  # in a process that gives it back
}
