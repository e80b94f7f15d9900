"""Conversion between named tuples of tensors and the flat lists that operators and autograd take.

A field is a tensor, an optional tensor, a number, or another such named tuple.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch

# Names of the fields' types in PyTorch's operator schemas.
_SCHEMA_TYPES = {
    torch.Tensor: "Tensor",
    torch.Tensor | None: "Tensor?",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
}


class Layout:
    """Layout of the flat list of several named tuples.

    Args:
        kinds: the classes of the tuples.

    Attributes:
        fields: the type of every entry by name; the field `key` of the field `weights` is `weights_key`.
    """

    def __init__(self, *kinds: type[NamedTuple]):
        self.fields = {name: kind for tuple_kind in kinds for name, kind in _flat_fields(tuple_kind).items()}
        self._parts = [_part(kind) for kind in kinds]

    def unflatten(self, flat: Iterable) -> list[tuple]:
        """Returns the tuples with these entries."""
        entries = iter(flat)
        return [_filled(part, entries) for part in self._parts]


def flatten(*values: tuple) -> list:
    """Returns the entries of named tuples, one tuple after the other."""
    flat = []
    for value in values:
        for entry in value:
            if isinstance(entry, tuple):
                flat += flatten(entry)
            else:
                flat.append(entry)
    return flat


def schema(arguments: dict[str, Any], num_results: int) -> str:
    """Returns the schema of an operator with these argument names and types and this number of tensors as results."""
    taken = ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in arguments.items())
    return f"({taken}) -> ({', '.join(['Tensor'] * num_results)})"


def _is_tuple(kind: type) -> bool:
    return hasattr(kind, "_fields")


def _flat_fields(kind: type[NamedTuple], prefix: str = "") -> dict[str, type]:
    fields = {}
    for name, field in kind.__annotations__.items():
        fields |= _flat_fields(field, f"{prefix}{name}_") if _is_tuple(field) else {prefix + name: field}
    return fields


def _part(kind: type[NamedTuple]) -> tuple:
    """Returns a tuple class, its number of fields, and the same for its nested tuples, by index."""
    nested = {place: _part(field) for place, field in enumerate(kind.__annotations__.values()) if _is_tuple(field)}
    return kind, len(kind._fields), nested


def _filled(part: tuple, entries: Iterator) -> tuple:
    kind, num_fields, nested = part
    if not nested:
        return kind(*islice(entries, num_fields))
    return kind(
        *[_filled(nested[place], entries) if place in nested else next(entries) for place in range(num_fields)]
    )
