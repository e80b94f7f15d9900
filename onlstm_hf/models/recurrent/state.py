"""The state that a recurrent language model hands from one call to the next."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch.utils import _pytree as pytree


class ModelState:
    """Base of the states: dataclasses of tensors and of tuples, lists and dicts of tensors, all of them batch first.

    `generate` carries and reorders it, a training loop detaches it between the chunks of a stream. A subclass needs
    nothing but its fields and `@dataclass`.
    """

    # `generate` takes the state for a cache, and asks: can its past be cut off, and can its steps be compiled?
    is_croppable = False
    is_compileable = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # Lets torch.compile, torch.export and FSDP look inside. The name has the module in it, as a second copy of
        # this class comes with the code that travels with a checkpoint.
        pytree.register_pytree_node(
            cls,
            lambda state: ([getattr(state, field.name) for field in fields(state)], None),
            lambda values, _: cls(*values),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
            flatten_with_keys_fn=lambda state: (
                [(pytree.GetAttrKey(field.name), getattr(state, field.name)) for field in fields(state)],
                None,
            ),
        )
        # Lets `torch.load` read a saved state without trusting the file with anything else.
        torch.serialization.add_safe_globals([cls])

    @property
    def batch_size(self) -> int:
        return pytree.tree_leaves(self)[0].shape[0]

    @property
    def shapes(self) -> dict:
        """The shape of every tensor, by field and nested as the tensors are."""
        return {
            field.name: pytree.tree_map(lambda tensor: tuple(tensor.shape), getattr(self, field.name))
            for field in fields(self)
        }

    def __getitem__(self, row: int) -> "ModelState":
        """The state of one row of the batch, as a batch of one: pipelines take the outputs of a batch apart."""
        return self.map(lambda tensor: tensor[row].unsqueeze(0))

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "ModelState":
        """A new state with `function` applied to every tensor."""
        return pytree.tree_map(function, self)

    def detach(self) -> "ModelState":
        """The same values, cut off from the graph that computed them."""
        return self.map(torch.Tensor.detach)

    def to(self, *args, **kwargs) -> "ModelState":
        """The state on another device or in another dtype; arguments as for `torch.Tensor.to`."""
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def index_select(self, indices: torch.LongTensor) -> "ModelState":
        """The states of the given rows of the batch, in the given order."""
        return self.map(lambda tensor: tensor.index_select(0, indices.to(tensor.device)))

    def repeat_interleave(self, repeats: int) -> "ModelState":
        """Every row `repeats` times, copies next to each other, as `generate` expands a batch."""
        return self.map(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Selects rows in place, as beam search asks of every cache."""
        selected = self.index_select(beam_idx)
        for field in fields(self):
            setattr(self, field.name, getattr(selected, field.name))


@dataclass
class RecurrentState(ModelState):
    """The tensors that a stack of recurrent layers needs to go on from where it stopped.

    Attributes:
        layers: for each layer, lowest first, its tensors, all batch first. ON-LSTM: the hidden state `[B, H]` and the
            cell state `[B, C, K]` (`C` chunks of `K` units).
    """

    layers: tuple[tuple[torch.Tensor, ...], ...]
