"""Named tuples of tensors, and the flat lists that operators and autograd take: here one becomes the other.

A field is a tensor, an optional tensor, a number, or another such named tuple.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import torch

Kind = TypeVar("Kind", bound=NamedTuple)

# What PyTorch's operator schemas call the types of the fields.
_SCHEMA_TYPES = {
    torch.Tensor: "Tensor",
    torch.Tensor | None: "Tensor?",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
}


def flat_fields(kind: type[NamedTuple], prefix: str = "") -> dict[str, Any]:
    """Name and type of every entry of the flat list, in its order: the field `key` of `weights` is `weights_key`."""
    fields = {}
    for name, field_type in kind.__annotations__.items():
        is_nested = hasattr(field_type, "_fields")
        fields |= flat_fields(field_type, f"{prefix}{name}_") if is_nested else {prefix + name: field_type}
    return fields


def flatten(*values: tuple) -> list:
    """The entries of named tuples, one tuple after the other."""
    flat = []
    for value in values:
        for entry in value:
            if isinstance(entry, tuple):
                flat += flatten(entry)
            else:
                flat.append(entry)
    return flat


def unflatten(flat: Iterable, *kinds: type[Kind]) -> tuple[Kind, ...]:
    """The named tuples of these kinds whose entries, one after the other, are those of the list."""
    entries = iter(flat)
    return tuple(_filled(kind, entries) for kind in kinds)


def named(value: NamedTuple, prefix: str = "") -> dict[str, Any]:
    """The entries by their flat names, each with the prefix before it."""
    return dict(zip(flat_fields(type(value), prefix), flatten(value), strict=True))


def schema(arguments: dict[str, Any], num_results: int) -> str:
    """The schema of an operator that takes arguments of these names and types and returns that many tensors."""
    taken = ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in arguments.items())
    return f"({taken}) -> ({', '.join(['Tensor'] * num_results)})"


def _filled(kind, entries):
    types = kind.__annotations__.values()
    return kind(*[_filled(entry, entries) if hasattr(entry, "_fields") else next(entries) for entry in types])
