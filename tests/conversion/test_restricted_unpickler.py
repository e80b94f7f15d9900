import collections
import os
import pickle
import struct
import tracemalloc
from contextlib import suppress
from io import BytesIO

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from onlstm_hf.conversion.restricted_unpickler import MAX_OPERATIONS, Global, Record, unpickle
from tests.helpers.original_files import watched

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers(-(2**63), 2**63)
VALUES = st.recursive(
    SCALARS | st.sets(KEYS),
    lambda values: st.lists(values) | st.lists(values).map(tuple) | st.dictionaries(KEYS, values),
    max_leaves=20,
)


def load(program: bytes):
    return unpickle(BytesIO(program))


def calling(function, *arguments):
    """An object whose pickle calls the function."""

    class Call:
        def __reduce__(self):
            return function, arguments

    return Call()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(value=VALUES)
def test_containers_strings_and_numbers_are_read(value, protocol):
    assert load(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_references_and_cycles_are_kept(protocol):
    shared = ["shared"]
    value = {"first": shared, "second": (shared, shared)}
    value["itself"] = value
    read = load(pickle.dumps(value, protocol))
    assert read["itself"] is read
    assert read["first"] is read["second"][0] is read["second"][1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dictionaries_of_collections_are_plain_ones(protocol):
    value = [collections.OrderedDict(a=1, b=[2]), collections.defaultdict(list, c=3), frozenset("de")]
    assert load(pickle.dumps(value, protocol)) == [{"a": 1, "b": [2]}, {"c": 3}, {"d", "e"}]


def test_an_ordered_dictionary_of_python_2_is_read():
    assert load(b"\x80\x02ccollections\nOrderedDict\n](](U\x01aK\x01e](U\x01bK\x02ee\x85R.") == {"a": 1, "b": 2}


def test_attributes_of_an_ordered_dictionary_are_left_out():
    state_dict = torch.nn.BatchNorm1d(1, affine=False, track_running_stats=False).state_dict()
    assert state_dict._metadata
    assert load(pickle.dumps(state_dict, 2)) == {}


class Booby:
    """An importable class, all of whose ways to be made run code."""

    def __new__(cls, *arguments):
        raise AssertionError("__new__ was run")

    def __init__(self):
        raise AssertionError("__init__ was run")

    def __setstate__(self, state):
        raise AssertionError("__setstate__ was run")

    def __setattr__(self, name, value):
        raise AssertionError("__setattr__ was run")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_instance_becomes_a_record(protocol):
    value = object.__new__(Booby)
    value.__dict__.update(dropout=0.5, inner=[object.__new__(Booby)])
    record = load(pickle.dumps(value, protocol))
    assert type(record) is Record
    assert record.class_name == f"{__name__}.Booby"
    assert record.state["dropout"] == 0.5
    assert type(record.state["inner"][0]) is Record


@pytest.mark.parametrize(
    "program", [b"\x80\x02(cold\nStyle\noq\x00}U\x01aK\x01sb.", b"(iold\nStyle\np0\n(dp1\nS'a'\np2\nI1\nsb."]
)
def test_an_old_style_instance_becomes_a_record(program):
    record = load(program)
    assert (record.class_name, record.arguments, record.state) == ("old.Style", (), {"a": 1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", [os.system, Booby, torch.nn.functional.relu, len])
def test_functions_and_classes_stay_names(protocol, value):
    (name,) = load(pickle.dumps([value], protocol))
    assert type(name) is Global
    assert name.name.endswith(value.__name__)


def test_the_known_functions_are_called_in_place_of_those_that_are_named():
    calls = []
    program = pickle.dumps([calling(os.system, "ls"), calling(os.system, "cd")], 2)
    name = f"{os.system.__module__}.system"
    assert unpickle(BytesIO(program), {name: lambda command: calls.append(command) or len(calls)}) == [1, 2]
    assert calls == ["ls", "cd"]
    with pytest.raises(ValueError, match="unexpected arguments"):
        unpickle(BytesIO(program), {name: lambda: None})


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_persistent_ids_go_to_their_function(protocol):
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return ("number", str(value)) if isinstance(value, int) else None

    stream = BytesIO()
    Pickler(stream, protocol).dump(["a", 7])
    assert unpickle(BytesIO(stream.getvalue()), load_persistent=lambda identifier: identifier) == [
        "a",
        ("number", "7"),
    ]
    with pytest.raises(ValueError, match="outside of it"):
        load(stream.getvalue())


def value(content) -> bytes:
    """The part of a pickle that makes a value."""
    return pickle.dumps(content, protocol=2)[2:-1]


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def call(module: str, attribute: str, *arguments: bytes) -> bytes:
    return name(module, attribute) + b"(" + b"".join(arguments) + b"tR"


TOUCH = "touch was-run"
SYSTEM = call("os", "system", value(TOUCH))
# Each makes the file `was-run`, or does something else that a file must not, where Python's own reader loads it.
MALICIOUS = {
    "system": SYSTEM,
    "posix": call("posix", "system", value(TOUCH)),
    "python 2": call("__builtin__", "eval", value("open('was-run', 'w')")),
    "eval": call("builtins", "eval", value("open('was-run', 'w')")),
    "exec": call("builtins", "exec", value("open('was-run', 'w')")),
    "open": call("builtins", "open", value("was-run"), value("w")),
    "subprocess": call("subprocess", "Popen", value(["touch", "was-run"])),
    "import": call("builtins", "__import__", value("antigravity")),
    "import_module": call("importlib", "import_module", value("antigravity")),
    "getattr": call("builtins", "getattr", name("os", "path"), value("join")),
    "getattr chain": call(
        "builtins", "getattr", call("builtins", "getattr", name("os", "path"), value("os")), value("a")
    ),
    "partial": call("functools", "partial", name("os", "system"), value(TOUCH)),
    "methodcaller": call("operator", "methodcaller", value("system"), value(TOUCH)),
    "map": call("builtins", "list", call("builtins", "map", name("os", "system"), value([TOUCH]))),
    "pickle": call("pickle", "loads", value(b"cos\nsystem\n(S'touch was-run'\ntR.")),
    "torch.load": call("torch", "load", value("was-run")),
    "torch.hub": call("torch.hub", "load", value("someone/something"), value("model")),
    "torch storage": call("torch.storage", "_load_from_bytes", value(b"")),
    "torch internals": call("torch._utils", "_rebuild_device_tensor_from_numpy", value([0])),
    "torch state": call("torch._utils", "_set_obj_state", name("os", "path"), value({"join": 1})),
    "numpy array": call("numpy.core.multiarray", "_reconstruct", name("numpy", "ndarray"), b"(K\x00t", value("b")),
    "reconstructor": call("copyreg", "_reconstructor", name("a", "B"), name("builtins", "object"), b"N"),
    "reconstructor of python 2": call(
        "copy_reg", "_reconstructor", name("a", "B"), name("__builtin__", "object"), b"N"
    ),
    "__newobj__": call("copyreg", "__newobj__", name("subprocess", "Popen")),
    "codecs": call("codecs", "decode", value("616263"), value("hex")),
    "_codecs": call("_codecs", "encode", value("abc"), value("latin1")),
    "huge number": call("builtins", "pow", value(10), value(10**9)),
    "huge buffer": call("builtins", "bytearray", value(10**12)),
    "method of a dictionary": call("builtins", "dict.update", b"}", b"}"),
    "called twice": SYSTEM + b")R",
    "in a list": b"](" + value(1) + SYSTEM + b"e",
    "as a key": b"}" + SYSTEM + b"K\x01s",
    "as a state": name("model", "RNNModel") + b")\x81}" + value("dropout") + SYSTEM + b"sb",
    "as an argument of a class": name("model", "RNNModel") + b"(" + SYSTEM + b"t\x81",
    "as a class": SYSTEM + b")\x81",
    "as a factory": call("collections", "defaultdict", SYSTEM),
    "as a persistent id": SYSTEM + b"Q",
    "thrown away": SYSTEM + b"0N",
    "stored": SYSTEM + b"q\x000h\x00",
    "by a name from the stack": value("os") + value("system") + b"\x93" + value((TOUCH,)) + b"R",
    "named instance": b"(" + value(TOUCH) + b"ios\nsystem\n",
    "marked instance": b"(cos\nsystem\n" + value(TOUCH) + b"o",
    "instance with keywords": name("subprocess", "Popen") + b")}\x92",
    "extension": b"\x82\x01",
    "wide extension": b"\x83\x01\x00",
    "textual persistent id": b"Pos.system\n",
    "state of a class": name("collections", "OrderedDict") + b"}" + value("update") + name("os", "system") + b"sb",
    "slots of a class": name("collections", "OrderedDict") + b"(N}" + value("update") + name("os", "system") + b"stb",
    "items of a class": name("os", "environ") + value("PATH") + value("") + b"s",
    "items of a record": name("os", "_Environ") + b")\x81" + value("PATH") + value("") + b"s",
    "appended to a class": name("sys", "path") + value("/tmp") + b"a",
    "added to a class": name("a", "b") + b"(K\x01\x90",
    "call of a record": name("a", "B") + b")\x81)R",
    "call of a text": value("os.system") + value((TOUCH,)) + b"R",
    "buffer": b"\x97",
}
DAMAGED = {
    "empty": b"",
    "no end": b"\x80\x02N",
    "no value": b".",
    "no mark": b"K\x01t.",
    "value below a mark": b"K\x01(\x85.",
    "unknown operation": b"\xff.",
    "unknown reference": b"h\x05.",
    "nothing to store": b"q\x00.",
    "odd number of keys and values": b"}(K\x01u.",
    "key without value": b"}K\x01s.",
    "append to a dictionary": b"}K\x01a.",
    "items of a list": b"]K\x01K\x01s.",
    "subclass of a container": name("a", "List") + b")\x81K\x01a.",
    "list as a key": b"}]K\x01s.",
    "dictionary as a key": b"}}K\x01s.",
    "tuple as a key": b"})K\x01s.",
    "large number as a key": b"}" + value(1 << 100) + b"K\x01s.",
    "list in a set": b"\x8f(]\x90.",
    "list in a frozenset": b"(]\x91.",
    "name that is no text": b"K\x01K\x02\x93.",
    "class that is no class": b"K\x01)\x81.",
    "arguments that are no tuple": name("a", "B") + b"]\x81.",
    "call with a list": name("collections", "OrderedDict") + b"]R.",
    "too many arguments": call("collections", "OrderedDict", b"]", b"]") + b".",
    "no pairs": call("collections", "OrderedDict", b"](K\x01e") + b".",
    "triples": call("collections", "OrderedDict", b"](](K\x01K\x01K\x01ee") + b".",
    "set of a number": call("builtins", "set", b"K\x01") + b".",
    "marked instance of nothing": b"(o.",
    "marked instance of a number": b"(K\x01o.",
    "text that is no UTF-8": b"X\x01\x00\x00\x00\xff.",
    "wrong number": b"Iabc\n.",
    "wrong float": b"Fabc\n.",
    "wrong quotes": b"S'abc\n.",
}


@pytest.mark.parametrize("program", MALICIOUS.values(), ids=MALICIOUS)
def test_a_pickle_that_would_run_code_is_refused(program):
    for start in (b"\x80\x02", b"\x80\x04\x95" + struct.pack("<Q", len(program) + 1), b""):
        with pytest.raises(ValueError, match="the pickle"), watched() as events:
            load(start + program + b".")
        assert not events


@pytest.mark.parametrize("program", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_pickle_is_refused(program):
    with pytest.raises(ValueError), watched() as events:
        load(program)
    assert not events


def test_the_watch_sees_what_the_reader_of_python_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with watched() as events:
        pickle.loads(SYSTEM + b".")
    assert {"pickle.find_class", "os.system"} <= set(events)
    assert (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    "program",
    [
        name("os", "system"),
        name("os", "system") + b")\x81",
        name("subprocess", "Popen") + value((["touch", "was-run"],)) + b"\x81",
        b"(ios\nabort\n",
        name("a", "B") + b")\x81}" + value("__class__") + name("os", "system") + b"sb",
        name("a", "B") + b")\x81}" + value("__setstate__") + name("os", "system") + b"sb" + value(TOUCH) + b"b",
        name("a", "B") + b")\x81}" + value("__reduce__") + name("os", "system") + b"sb",
        name("a", "B") + b")\x81(N}" + value("class_name") + name("os", "system") + b"stb",
    ],
)
def test_harmless_mentions_stay_inert(program):
    with watched() as events:
        loaded = load(program + b".")
    assert not events
    assert type(loaded) in (Global, Record)
    if type(loaded) is Record:
        assert loaded.class_name in ("os.system", "os.abort", "subprocess.Popen", "a.B")


def peak_memory(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


HUGE = 1 << 40
COPY_AS_SET = name("builtins", "set") + b"h\x00\x85R"
COPY_AS_DICTIONARY = name("collections", "OrderedDict") + b"h\x00\x85R"
BOMBS = {
    "text": b"\x8d" + struct.pack("<Q", HUGE) + b"abc.",
    "text below 4 GiB": b"X" + struct.pack("<I", 0xFFFFFFFF) + b"abc.",
    "bytes": b"\x8e" + struct.pack("<Q", HUGE) + b"abc.",
    "bytes of Python 2": b"T" + struct.pack("<i", 0x7FFFFFFF) + b"abc.",
    "buffer": b"\x96" + struct.pack("<Q", HUGE) + b"abc.",
    "frame": b"\x95" + struct.pack("<Q", HUGE) + b"N",
    "integer": b"\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"abc.",
    "negative size": b"\x8b" + struct.pack("<i", -5) + b"abc.",
    "long integer": b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000 + b".",
    "long decimal": b"L" + b"9" * 100_000 + b"L\n.",
    "operations": b"N0" * MAX_OPERATIONS + b"N.",
    "marks": b"(" * 2 * MAX_OPERATIONS + b".",
    "copies of a list": b"](" + b"K\x01" * 10_000 + b"eq\x000" + 10_000 * COPY_AS_SET + b"N.",
    "copies of a dictionary": b"](" + b"](K\x01K\x02e" * 5_000 + b"eq\x000" + 10_000 * COPY_AS_DICTIONARY + b"N.",
    "copies of a name": value("a" * 100_000) + b"q\x000" + 10_000 * b"h\x00h\x00\x93" + b"N.",
}


@pytest.mark.parametrize("program", BOMBS.values(), ids=BOMBS)
def test_a_small_pickle_gets_little_memory(program):
    def work():
        with pytest.raises(ValueError):
            load(program)

    assert peak_memory(work) < 50_000_000


def test_a_huge_memo_index_takes_no_memory():
    program = b"](N" + b"r" + struct.pack("<I", 0xFFFFFFFF) + b"j" + struct.pack("<I", 0xFFFFFFFF) + b"e."
    assert peak_memory(lambda: load(program)) < 1_000_000


@pytest.mark.parametrize(
    "program",
    [
        b"N" + b"\x85" * 100_000,
        b"(" * 90_000 + b"l" * 90_000,
        (b"ca\nB\n)\x81q\x00" + (b"ca\nB\n)\x81" * 40_000) + b"b" * 40_000),
        b"}" + b"N}" * 40_000 + b"s" * 40_000,
        b"]q\x00h\x00ah\x00a",
    ],
    ids=["tuples", "lists", "records", "dictionaries", "itself"],
)
def test_deep_nesting_and_cycles_do_no_harm(program):
    load(program + b".")


def test_doubling_references_take_no_memory():
    program = b"]" + b"2\x86" * 1000 + b"."
    assert peak_memory(lambda: load(program)) < 2_000_000


@given(program=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(program):
    with suppress(ValueError):
        load(program)
