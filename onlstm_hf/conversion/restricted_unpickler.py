"""Pickles as data: read by a stack machine that imports nothing and calls nothing that a pickle names.

A pickle is a program, and Python's own reader imports and calls whatever it names. This one keeps every name as a
name. Containers, strings and numbers become themselves, and an instance of a class becomes a `Record`. Where the
pickle calls a function, one of ours runs in its place, from a list that the caller gives; other calls are refused.
"""

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


@dataclass(eq=False, frozen=True, slots=True)
class Global:
    """The name of a class or a function, which has not been looked up."""

    name: str


@dataclass(eq=False, repr=False, slots=True)
class Record:
    """What a pickle holds of an instance of a class: nothing of the class itself but its name.

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
    return _Machine(functions or {}, load_persistent).run(stream)


class _Machine:
    def __init__(self, functions: Mapping[str, Callable], load_persistent: Callable | None):
        self._functions = {
            "builtins.set": self._new_set,
            "builtins.frozenset": self._new_set,
            "collections.OrderedDict": self._new_dict,
            "collections.defaultdict": lambda factory=None: {},
            **functions,
        }
        self._load_persistent = load_persistent
        self._stack: list[Any] = []
        self._stacks_below_marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._operations_left = MAX_OPERATIONS

    def run(self, stream: BinaryIO) -> Any:
        for operation, argument, _ in pickletools.genops(stream):
            self._spend(1)
            if operation.name == "STOP":
                return self._pop()
            if operation.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[operation.name])
            elif operation.name in _LITERALS:
                if isinstance(argument, int) and argument.bit_length() > _MAX_INTEGER_BITS:
                    raise ValueError(f"the pickle holds an integer of more than {_MAX_INTEGER_BITS} bits")
                self._stack.append(argument)
            elif operation.name in _OPERATIONS:
                _OPERATIONS[operation.name](self, argument)
            else:
                raise ValueError(f"the pickle uses {operation.name}, which is not supported")

    def _spend(self, count: int) -> None:
        self._operations_left -= count
        if self._operations_left < 0:
            raise ValueError(f"the pickle takes more than {MAX_OPERATIONS} operations")

    def _pop(self) -> Any:
        if not self._stack:
            raise ValueError("the pickle is damaged: it takes a value that it did not put")
        return self._stack.pop()

    def _pop_to_mark(self) -> list[Any]:
        if not self._stacks_below_marks:
            raise ValueError("the pickle is damaged: it goes back to a mark that it did not set")
        values, self._stack = self._stack, self._stacks_below_marks.pop()
        return values

    def _top(self, kind: type) -> Any:
        top = self._pop()
        if type(top) is not kind:
            raise ValueError(f"the pickle is damaged: expected a {kind.__name__}, found a {type(top).__name__}")
        self._stack.append(top)
        return top

    def _mark(self, _: None) -> None:
        self._stacks_below_marks.append(self._stack)
        self._stack = []

    def _discard(self, _: None) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_to_mark()

    def _discard_to_mark(self, _: None) -> None:
        self._pop_to_mark()

    def _duplicate(self, _: None) -> None:
        value = self._pop()
        self._stack += [value, value]

    def _memoize(self, index: int | None) -> None:
        value = self._pop()
        self._stack.append(value)
        self._memo[len(self._memo) if index is None else index] = value

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError("the pickle is damaged: it refers to a value that it did not store")
        self._stack.append(self._memo[index])

    def _push_container(self, kind: type) -> None:
        self._stack.append(kind())

    def _collect_list(self, _: None) -> None:
        values = self._pop_to_mark()
        self._stack.append(values)

    def _collect_tuple(self, _: None) -> None:
        values = self._pop_to_mark()
        self._stack.append(tuple(values))

    def _collect_frozenset(self, _: None) -> None:
        values = self._pop_to_mark()
        self._stack.append({_checked_key(value) for value in values})

    def _collect_dict(self, _: None) -> None:
        values = self._pop_to_mark()
        self._stack.append(_add_pairs({}, values))

    def _tuple_of(self, size: int) -> None:
        self._stack.append(tuple(reversed([self._pop() for _ in range(size)])))

    def _append(self, _: None) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _extend(self, _: None) -> None:
        values = self._pop_to_mark()
        self._top(list).extend(values)

    def _set_item(self, _: None) -> None:
        value, key = self._pop(), self._pop()
        _add_pairs(self._top(dict), [key, value])

    def _set_items(self, _: None) -> None:
        values = self._pop_to_mark()
        _add_pairs(self._top(dict), values)

    def _add_items(self, _: None) -> None:
        values = self._pop_to_mark()
        self._top(set).update(_checked_key(value) for value in values)

    def _name(self, module_and_name: str) -> None:
        self._stack.append(_global(*module_and_name.split(" ", 1)))

    def _name_from_stack(self, _: None) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("the pickle is damaged: the name of a class or function is no text")
        self._stack.append(_global(module, name))

    def _new_object(self, _: None) -> None:
        arguments, kind = self._pop(), self._pop()
        if not isinstance(kind, Global) or type(arguments) is not tuple:
            raise ValueError("the pickle is damaged: it makes an instance of something that is no class")
        self._stack.append(Record(kind.name, arguments))

    def _old_style_instance(self, kind: Any, arguments: list[Any]) -> None:
        if not isinstance(kind, Global):
            raise ValueError("the pickle is damaged: it makes an instance of something that is no class")
        if arguments:  # Python's reader would call whatever has this name with them
            raise _refused_call(kind.name)
        self._stack.append(Record(kind.name))

    def _named_instance(self, module_and_name: str) -> None:
        arguments = self._pop_to_mark()
        self._old_style_instance(_global(*module_and_name.split(" ", 1)), arguments)

    def _marked_instance(self, _: None) -> None:
        kind, *arguments = self._pop_to_mark() or [None]
        self._old_style_instance(kind, arguments)

    def _set_state(self, _: None) -> None:
        state, target = self._pop(), self._pop()
        if isinstance(target, Global):
            raise ValueError(f"the pickle changes {ascii(target.name)[:200]}, which is refused")
        if isinstance(target, Record):
            target.state = state
        # Anything else has none: the attributes of an OrderedDict and the flags of a parameter are left out.
        self._stack.append(target)

    def _call(self, _: None) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or type(arguments) is not tuple:
            raise ValueError("the pickle is damaged: it calls something that is no function")
        if function.name not in self._functions:
            raise _refused_call(function.name)
        try:
            result = self._functions[function.name](*arguments)
        except TypeError as error:
            raise ValueError(f"the pickle calls {function.name} with unexpected arguments") from error
        self._stack.append(result)

    def _persistent(self, _: None) -> None:
        identifier = self._pop()
        if self._load_persistent is None:
            raise ValueError("the pickle refers to data outside of it, where there should be none")
        self._stack.append(self._load_persistent(identifier))

    def _new_set(self, values: list[Any] | tuple = ()) -> set[Any]:
        self._check_copied(values)
        return {_checked_key(value) for value in values}

    def _new_dict(self, pairs: list[Any] | tuple = ()) -> dict[Any, Any]:
        self._check_copied(pairs)
        if not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
            raise ValueError("the pickle is damaged: expected pairs of keys and values")
        return _add_pairs({}, [value for pair in pairs for value in pair])

    def _check_copied(self, values: Any) -> None:
        if type(values) not in (list, tuple):
            raise ValueError(f"the pickle is damaged: expected a list, found a {type(values).__name__}")
        self._spend(len(values))


def _global(module: str, name: str) -> Global:
    if len(module) + len(name) > _MAX_NAME_LENGTH:
        raise ValueError("the pickle has the name of a class or function that is too long")
    return Global(f"{'builtins' if module == '__builtin__' else module}.{name}")


def _refused_call(name: str) -> ValueError:
    return ValueError(f"the pickle calls {ascii(name)[:200]}; code that comes with a file is never run")


def _add_pairs(target: dict, keys_and_values: list[Any]) -> dict:
    if len(keys_and_values) % 2:
        raise ValueError("the pickle is damaged: a key without its value")
    keys = map(_checked_key, keys_and_values[::2])
    target.update(zip(keys, keys_and_values[1::2], strict=True))
    return target


def _checked_key(key: Any) -> Any:
    """Refuses keys that could harm: hashing a deeply nested tuple overflows the stack, and large integers collide."""
    if isinstance(key, (tuple, list, dict, set)) or (isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS):
        raise ValueError(f"the pickle has an unsupported {type(key).__name__} as a key")
    return key


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
# What is missing here is refused: extension codes (they stand for names that another program registered), persistent
# ids as text, and buffers outside the file.
_OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": _Machine._mark,
    "POP": _Machine._discard,
    "POP_MARK": _Machine._discard_to_mark,
    "DUP": _Machine._duplicate,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine._memoize),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine._recall),
    "EMPTY_LIST": lambda machine, _: machine._push_container(list),
    "EMPTY_TUPLE": lambda machine, _: machine._push_container(tuple),
    "EMPTY_DICT": lambda machine, _: machine._push_container(dict),
    "EMPTY_SET": lambda machine, _: machine._push_container(set),
    "LIST": _Machine._collect_list,
    "TUPLE": _Machine._collect_tuple,
    "TUPLE1": lambda machine, _: machine._tuple_of(1),
    "TUPLE2": lambda machine, _: machine._tuple_of(2),
    "TUPLE3": lambda machine, _: machine._tuple_of(3),
    "DICT": _Machine._collect_dict,
    "FROZENSET": _Machine._collect_frozenset,
    "APPEND": _Machine._append,
    "APPENDS": _Machine._extend,
    "SETITEM": _Machine._set_item,
    "SETITEMS": _Machine._set_items,
    "ADDITEMS": _Machine._add_items,
    "GLOBAL": _Machine._name,
    "STACK_GLOBAL": _Machine._name_from_stack,
    "NEWOBJ": _Machine._new_object,
    "INST": _Machine._named_instance,
    "OBJ": _Machine._marked_instance,
    "BUILD": _Machine._set_state,
    "REDUCE": _Machine._call,
    "BINPERSID": _Machine._persistent,
}
