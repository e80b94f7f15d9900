"""The state that a recurrent language model hands from one call to the next."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree


@dataclass
class RecurrentState:
    """The tensors that a recurrent model needs to go on from where it stopped.

    `generate` carries and reorders it, a training loop detaches it between the chunks of a stream.

    Attributes:
        layers: for each layer, lowest first, its tensors, all batch first. ON-LSTM: the hidden state `[B, H]` and the
            cell state `[B, C, K]` (`C` chunks of `K` units).
    """

    layers: tuple[tuple[torch.Tensor, ...], ...]

    # What `generate` asks of a cache: the past cannot be cut off again, and steps are not compiled on their own.
    is_croppable = False
    is_compileable = False

    @property
    def batch_size(self) -> int:
        return self.layers[0][0].shape[0]

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "RecurrentState":
        """A new state with `function` applied to every tensor."""
        return RecurrentState(tuple(tuple(function(tensor) for tensor in layer) for layer in self.layers))

    def detach(self) -> "RecurrentState":
        """The same values, cut off from the graph that computed them."""
        return self.map(torch.Tensor.detach)

    def to(self, *args, **kwargs) -> "RecurrentState":
        """The state on another device or in another dtype; arguments as for `torch.Tensor.to`."""
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def index_select(self, indices: torch.LongTensor) -> "RecurrentState":
        """The states of the given rows of the batch, in the given order."""
        return self.map(lambda tensor: tensor.index_select(0, indices.to(tensor.device)))

    def repeat_interleave(self, repeats: int) -> "RecurrentState":
        """Every row `repeats` times, copies next to each other, as `generate` expands a batch."""
        return self.map(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Selects rows in place, as beam search asks of every cache."""
        self.layers = self.index_select(beam_idx).layers


# Lets torch.compile, torch.export and FSDP look inside. The name is the module's, as a second copy of this class comes
# with the code that travels with a checkpoint.
pytree.register_pytree_node(
    RecurrentState,
    lambda state: ([list(layer) for layer in state.layers], None),
    lambda layers, _: RecurrentState(tuple(tuple(layer) for layer in layers)),
    serialized_type_name=f"{__name__}.RecurrentState",
)
# Lets `torch.load` read a saved state without trusting the file with anything else.
torch.serialization.add_safe_globals([RecurrentState])
