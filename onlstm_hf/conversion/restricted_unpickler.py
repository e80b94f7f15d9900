"""Untrusted pickles as data: Python's own reader, made to import nothing and to call nothing.

Containers, strings and numbers become themselves. A name of a class or function stays a name, and an instance of a
class becomes a `Record`. Where the pickle calls a function, one of ours runs in its place, from a list that the caller
gives; other calls are refused.
"""

import pickle
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

# A language model of dozens of modules takes some thousands. Together with the rule that no call may copy more than
# this, it bounds the time and the memory that a file can ask for.
MAX_OPERATIONS = 200_000
_MAX_INTEGER_BITS = 128
_MAX_KEY_BITS = 64
_MAX_NAME_LENGTH = 1000
# Extension codes stand for names that another program registered; buffers and textual ids lie outside of the pickle.
_REFUSED = {"EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER", "BYTEARRAY8", "NEWOBJ_EX"}

_INTEGERS = {"INT", "LONG", "LONG1", "LONG4"}


@dataclass(eq=False, frozen=True, slots=True)
class Global:
    """The name of a class or a function, which has not been looked up."""

    name: str


@dataclass(eq=False, repr=False, slots=True)
class Record:
    """An instance of a class in a pickle.

    Attributes:
        class_name: module and name.
        arguments: those of the class's `__new__`.
        state: in most cases a dictionary of the instance's attributes.
    """

    class_name: str
    arguments: tuple = ()
    state: Any = None


def unpickle(
    stream: BinaryIO,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    load_persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """Reads one pickle, of any protocol, and leaves the stream behind its end.

    Args:
        stream: its `read(n)` must not reserve memory for more than there is, as that of `io.BytesIO` does not.
        functions: by module and name of a function or class in the pickle, the function to call in its place. It gets
            arguments that the file chose, so it must check them, and raise `ValueError` or `TypeError`.
        load_persistent: the function to call with persistent ids, which stand for objects outside the pickle.

    Raises:
        ValueError: if the pickle is damaged or too large, calls any other function, or changes a class.
    """
    start = stream.tell()
    _check_operations(stream)
    stream.seek(start)
    try:
        return _Unpickler(stream, functions or {}, load_persistent).load()
    except ValueError:
        raise
    except Exception as error:  # whatever Python's reader does with a damaged pickle
        raise ValueError(f"the pickle is damaged: {error or type(error).__name__}") from error


def _check_operations(stream: BinaryIO) -> None:
    """Bounds what a pickle may ask for, before it is read."""
    for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
        if number >= MAX_OPERATIONS:
            raise ValueError(f"the pickle takes more than {MAX_OPERATIONS} operations")
        if operation.name in _REFUSED:
            raise ValueError(f"the pickle uses {operation.name}, which is not supported")
        if operation.name in _INTEGERS and argument.bit_length() > _MAX_INTEGER_BITS:
            raise ValueError(f"the pickle holds an integer of more than {_MAX_INTEGER_BITS} bits")


class _Unpickler(pickle._Unpickler):
    """The standard library's reader in Python, whose dispatch table can be restricted (that in C cannot)."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, stream: BinaryIO, functions: Mapping[str, Callable], load_persistent: Callable | None):
        super().__init__(stream, encoding="latin1")  # of the texts of Python 2
        self._functions = {
            "builtins.set": self._new_set,
            "builtins.frozenset": self._new_set,
            "collections.OrderedDict": self._new_dict,
            "collections.defaultdict": lambda factory=None: {},
            **functions,
        }
        self._load_persistent = load_persistent
        self._copies_left = MAX_OPERATIONS

    def find_class(self, module: str, name: str) -> Global:
        if len(module) + len(name) > _MAX_NAME_LENGTH:
            raise ValueError("the pickle has the name of a class or function that is too long")
        return Global(f"{'builtins' if module == '__builtin__' else module}.{name}")

    def persistent_load(self, identifier: Any) -> Any:
        if self._load_persistent is None:
            raise ValueError("the pickle refers to data outside of it, where there should be none")
        return self._load_persistent(identifier)

    def _reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global) or type(arguments) is not tuple:
            raise ValueError("the pickle is damaged: it calls something that is no function")
        if function.name not in self._functions:
            raise _refused_call(function.name)
        try:
            self.append(self._functions[function.name](*arguments))
        except TypeError as error:
            raise ValueError(f"the pickle calls {function.name} with unexpected arguments") from error

    def _new_object(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        if not isinstance(kind, Global) or type(arguments) is not tuple:
            raise ValueError("the pickle is damaged: it makes an instance of something that is no class")
        self.append(Record(kind.name, arguments))

    def _instantiate(self, kind: Any, arguments: list) -> None:
        """Called by the reader for INST and OBJ, the instances of Python 2."""
        if not isinstance(kind, Global):
            raise ValueError("the pickle is damaged: it makes an instance of something that is no class")
        if arguments:  # Python's reader would call whatever has this name with them
            raise _refused_call(kind.name)
        self.append(Record(kind.name))

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Global):
            raise ValueError(f"the pickle changes {ascii(target.name)[:200]}, which is refused")
        if isinstance(target, Record):
            target.state = state
        # Anything else has none: the attributes of an OrderedDict and the flags of a parameter are left out.

    def _append(self) -> None:
        value = self.stack.pop()
        self._top(list).append(value)

    def _extend(self) -> None:
        values = self.pop_mark()
        self._top(list).extend(values)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _add_pairs(self._top(dict), [key, value])

    def _set_items(self) -> None:
        values = self.pop_mark()
        _add_pairs(self._top(dict), values)

    def _add_items(self) -> None:
        values = self.pop_mark()
        self._top(set).update(map(_checked_key, values))

    def _collect_dict(self) -> None:
        values = self.pop_mark()
        self.append(_add_pairs({}, values))

    def _collect_frozenset(self) -> None:
        values = self.pop_mark()
        self.append(set(map(_checked_key, values)))

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"the pickle is damaged: expected a {kind.__name__}")
        return self.stack[-1]

    def _new_set(self, values: list | tuple = ()) -> set:
        self._check_copied(values)
        return set(map(_checked_key, values))

    def _new_dict(self, pairs: list | tuple = ()) -> dict:
        self._check_copied(pairs)
        if not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
            raise ValueError("the pickle is damaged: expected pairs of keys and values")
        return _add_pairs({}, [value for pair in pairs for value in pair])

    def _check_copied(self, values: Any) -> None:
        if type(values) not in (list, tuple):
            raise ValueError(f"the pickle is damaged: expected a list, found a {type(values).__name__}")
        self._copies_left -= len(values)
        if self._copies_left < 0:
            raise ValueError(f"the pickle copies more than {MAX_OPERATIONS} values")

    dispatch |= {
        pickle.REDUCE[0]: _reduce,
        pickle.NEWOBJ[0]: _new_object,
        pickle.BUILD[0]: _build,
        pickle.APPEND[0]: _append,
        pickle.APPENDS[0]: _extend,
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
        pickle.ADDITEMS[0]: _add_items,
        pickle.DICT[0]: _collect_dict,
        pickle.FROZENSET[0]: _collect_frozenset,
    }


def _refused_call(name: str) -> ValueError:
    return ValueError(f"the pickle calls {ascii(name)[:200]}; code that comes with a file is never run")


def _add_pairs(target: dict, keys_and_values: list) -> dict:
    if len(keys_and_values) % 2:
        raise ValueError("the pickle is damaged: a key without its value")
    target.update(zip(map(_checked_key, keys_and_values[::2]), keys_and_values[1::2], strict=True))
    return target


def _checked_key(key: Any) -> Any:
    """Refuses keys that could harm: hashing a deeply nested tuple overflows the stack, and large integers collide."""
    if isinstance(key, (tuple, list, dict, set)) or (isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS):
        raise ValueError(f"the pickle has an unsupported {type(key).__name__} as a key")
    return key
