"""The contract of a recurrent layer: what the models around it ask of it, whatever its equations are."""

from typing import Protocol, runtime_checkable

import torch


@runtime_checkable
class LayerOutput(Protocol):
    """What a layer returns: a named tuple, with whatever else its model reads (distances, attentions).

    Attributes:
        outputs: the hidden state after every step, in the layout of the inputs with the layer's size as the last
            dimension. At padding it repeats what comes before it.
    """

    @property
    def outputs(self) -> torch.Tensor: ...


@runtime_checkable
class RecurrentLayer(Protocol):
    """A layer that goes over a sequence step by step and carries a state.

    In a stack (`AWDLSTMModel`) sequences are time first: it calls `layer(inputs, *state, mask)` with the inputs
    `[T, B, input_size]` and the mask `[T, B]` of booleans, `False` at padding on either side, or `None`. The outputs
    have the dtype of the inputs, as the weights of the layer above have. The reading network of the PRPN is batch
    first: it calls `layer(inputs, *state, gates)` with the inputs `[B, T, input_size]`, padding at the end, and the
    gates `[B, T, S]` of the `S` memories, which need no mask.

    Attributes:
        implementations: the ways in which the layer can be computed. `"auto"`, the fastest one that fits each input,
            is always among them; others are `"reference"`, the equations as they are written, and the layer's fast
            paths.
        implementation: the one that is used, `"auto"` unless `set_implementation` of the model chose another.
    """

    implementations: tuple[str, ...]
    implementation: str

    def __call__(self, inputs: torch.Tensor, *state_and_structure: torch.Tensor | None) -> LayerOutput: ...

    def initial_state(self, batch_size: int) -> tuple[torch.Tensor, ...]:
        """The state before the first step: tensors with the rows of the batch as their first dimension.

        They are made on the default device, and the model moves them to that of its input: where the layer's own
        weights are may change from call to call.
        """
        ...

    def last_state(self, output: LayerOutput) -> tuple[torch.Tensor, ...]:
        """The state after the last step, in the shapes of `initial_state`; with it the layer goes on."""
        ...
