"""`torch.save` files are read correctly; hostile files run no code and use little memory."""

import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections import OrderedDict
from contextlib import suppress
from io import BytesIO
from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlstm_hf.conversion.saved_objects import MAX_OPERATIONS, Record, dictionary_of, read_saved_object, tensor_of
from tests.helpers.original_files import (
    LEGACY_HEAD,
    MakesAFolder,
    memory_below,
    mutated,
    mutations,
    onlstm_checkpoint,
    save_as_torch_0_3,
    save_in_legacy_format,
    save_in_zip,
    watched,
    write_legacy,
)

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
both_formats = pytest.mark.parametrize("is_zip", [True, False])


def save(value, path, is_zip=True):
    torch.save(value, path, _use_new_zipfile_serialization=is_zip)
    return path


def torch_zip(path, program: bytes, storages: dict[str, bytes], compression=zipfile.ZIP_STORED):
    """Writes a zip file like `torch.save`, with any pickle."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("file/data.pkl", program)
        for key, content in storages.items():
            archive.writestr(f"file/data/{key}", content)
    return path


def value(content) -> bytes:
    """Returns the part of a pickle that creates a value."""
    return pickle.dumps(content, protocol=2)[2:-1]


def tensor_program(
    num_elements=6, offset=0, sizes=(2, 3), strides=(3, 1), key="0", storage_type=b"ctorch\nFloatStorage\n", view=b""
) -> bytes:
    """Returns the pickle of one tensor."""
    storage = value("storage") + storage_type + value(key) + value("cpu") + value(num_elements) + view
    place = value(offset) + value(sizes) + value(strides)
    start = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + storage + b"tQ"
    return start + place + b"\x89ccollections\nOrderedDict\n)RtR."


def read_tensor(path) -> torch.Tensor:
    return tensor_of(*read_saved_object(path))


def load(program: bytes, folder):
    """Reads a zip file with this pickle."""
    return read_saved_object(torch_zip(folder / "file", program, {}))[0]


SIX_NUMBERS = torch.arange(6.0).numpy().tobytes()


def is_same(read, saved) -> bool:
    return type(read) is type(saved) is torch.Tensor and read.dtype == saved.dtype and torch.equal(read, saved)


# Valid files


@both_formats
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_all_common_types_are_read(tmp_path, dtype, is_zip):
    saved = (torch.arange(-12, 12) * 0.7).reshape(2, 3, 4).to(getattr(torch, dtype))
    assert is_same(read_tensor(save(saved, tmp_path / "file", is_zip)), saved)


@both_formats
def test_views_scalars_and_parameters_are_read(tmp_path, is_zip):
    matrix = torch.arange(20.0).reshape(4, 5)
    tensors = [matrix.t(), matrix[1:3, ::2], matrix[2, 3], torch.tensor(7), matrix[None, :, :]]
    content, storages = read_saved_object(save([*tensors, torch.nn.Parameter(matrix)], tmp_path / "file", is_zip))
    read = [tensor_of(record, storages) for record in content]
    assert all(map(is_same, read, [*tensors, matrix]))
    assert not read[-1].requires_grad
    assert read[0].untyped_storage().data_ptr() == read[1].untyped_storage().data_ptr()


@both_formats
def test_modules_and_optimizers_are_records(tmp_path, is_zip):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.25))
    path = save([module, torch.optim.Adam(module.parameters())], tmp_path / "file", is_zip)
    (read, optimizer), storages = read_saved_object(path)
    assert read.full_name == "torch.nn.modules.container.Sequential"
    assert optimizer.full_name == "torch.optim.adam.Adam"
    linear, norm, dropout = dictionary_of(read.state["_modules"]).values()
    assert is_same(tensor_of(linear.state["_parameters"]["weight"], storages), module[0].weight.detach())
    assert is_same(tensor_of(norm.state["_buffers"]["running_var"], storages), module[1].running_var)
    assert dropout.state["p"] == 0.25


def test_containers_text_numbers_and_cycles_are_read(tmp_path):
    content = {"list": [1, -2.5, None, True, 1 << 60], "tuple": (("é",), "", ()), 7: {}}
    content["itself"] = content
    read, _ = read_saved_object(save(content, tmp_path / "file"))
    assert read.pop("itself") is read
    del content["itself"]
    assert read == content
    ordered, default = load(pickle.dumps([OrderedDict(a=1, b=[2]), OrderedDict()], 2), tmp_path)
    assert dictionary_of(ordered) == {"a": 1, "b": [2]} and dictionary_of(default) == {}
    python_2 = b"\x80\x02ccollections\nOrderedDict\n](](U\x01aK\x01e](U\x01bK\x02ee\x85R."
    assert dictionary_of(load(python_2, tmp_path)) == {"a": 1, "b": 2}


def test_source_code_in_the_older_format_is_skipped(tmp_path):
    save_as_torch_0_3([torch.nn.Linear(2, 3)], tmp_path / "file")
    assert b"class Linear(nn.Module)" in (tmp_path / "file").read_bytes()
    (record,), storages = read_saved_object(tmp_path / "file")
    assert tensor_of(dictionary_of(record.state["_parameters"])["weight"], storages).shape == (3, 2)
    assert record.state["_backend"].full_name == "torch.nn.backends.thnn._get_thnn_function_backend"


def test_a_part_of_a_storage_is_read(tmp_path):
    program = tensor_program(6, 1, (2,), (1,), view=value(("7", 2, 3)))
    write_legacy(tmp_path / "file", program, {"0": torch.arange(6.0)})
    assert read_tensor(tmp_path / "file").tolist() == [3, 4]


# Damaged files


IMPOSSIBLE_TENSORS = {
    "larger than the storage": {"sizes": (3, 3)},
    "beyond the storage": {"offset": 1},
    "long steps": {"strides": (4, 1)},
    "negative offset": {"offset": -1},
    "negative step": {"strides": (-3, 1)},
    "negative size": {"sizes": (-2, 3)},
    "repeated without end": {"sizes": (10**9, 10**9), "strides": (0, 0)},
    "repeated": {"sizes": (3, 3), "strides": (1, 0)},
    "fewer steps than sizes": {"strides": (1,)},
    "size that is no number": {"sizes": (2, "3")},
    "size that is no integer": {"sizes": (2, 3.0)},
    "huge offset": {"offset": 2**100},
    "huge step": {"sizes": (1,), "strides": (2**70,)},
    "storage of more numbers than the file": {"num_elements": 10**12},
    "storage of fewer numbers than its entry": {"num_elements": 5, "sizes": (2, 2), "strides": (2, 1)},
    "storage of more numbers than its entry": {"num_elements": 7},
    "negative number of elements": {"num_elements": -1},
    "number of elements that is no number": {"num_elements": "6"},
    "storage that is missing": {"key": "1"},
    "storage outside of the folder": {"key": "../data.pkl"},
    "untyped storage": {"storage_type": b"ctorch\nUntypedStorage\n"},
    "storage of a strange class": {"storage_type": b"cos\nFloatStorage\n"},
    "storage of a text": {"storage_type": b"U\x0cFloatStorage"},
    "part beyond its storage": {"view": value(("7", 5, 6))},
    "part of no size": {"view": value(("7", 0))},
    "part of text": {"view": value(("7", "0", 6))},
    "part that is none": {"view": value(5)},
}


def tensor_files(folder, **fields):
    """Returns a file of each format with the tensor of `tensor_program`."""
    write_legacy(folder / "legacy", tensor_program(**fields), {"0": torch.arange(6.0)})
    return torch_zip(folder / "zip", tensor_program(**fields), {"0": SIX_NUMBERS}), folder / "legacy"


@pytest.mark.parametrize("fields", IMPOSSIBLE_TENSORS.values(), ids=IMPOSSIBLE_TENSORS)
def test_an_impossible_tensor_is_refused(tmp_path, fields):
    for path in tensor_files(tmp_path, **fields):
        with pytest.raises(ValueError):
            read_tensor(path)


def test_undamaged_test_files_are_read_and_a_damaged_entry_is_detected(tmp_path):
    path, legacy = tensor_files(tmp_path)
    assert is_same(read_tensor(path), torch.arange(6.0).reshape(2, 3)) and is_same(
        read_tensor(path), read_tensor(legacy)
    )
    content = path.read_bytes()
    path.write_bytes(content.replace(SIX_NUMBERS, SIX_NUMBERS[:-1] + b"\x01"))
    with pytest.raises(ValueError, match="Bad CRC"):
        read_saved_object(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    contents = (b"", b"text", b"\x80\x02N.", pickle.dumps({"a": 1}), pickle.dumps(1001, 2), os.urandom(400))
    for content, place in product(contents, (path, tmp_path / "file.safetensors")):
        place.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read {place}"):
            read_saved_object(place)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "text")
    with pytest.raises(ValueError, match=r"not from torch\.save"):
        read_saved_object(path)
    with tarfile.open(path, "w") as archive:  # the format of torch 0.1.10 and older
        archive.addfile(tarfile.TarInfo("storages"), BytesIO())
    with pytest.raises(ValueError, match=f"cannot read {path}"):
        read_saved_object(path)
    for missing in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match=f"there is no file {missing}"):
            read_saved_object(missing)


MAGIC, VERSION, _ = LEGACY_HEAD
BIG_ENDIAN = {"little_endian": False}


@pytest.mark.parametrize(
    "head",
    [(1, VERSION, {}), (MAGIC, 1002, {}), (MAGIC, VERSION), (MAGIC, VERSION, [1]), (MAGIC, VERSION, BIG_ENDIAN)],
)
def test_another_version_of_the_older_format_is_refused(tmp_path, head):
    write_legacy(tmp_path / "file", tensor_program(), {"0": torch.arange(6.0)}, head=head)
    with pytest.raises(ValueError, match="cannot read"):
        read_saved_object(tmp_path / "file")


@pytest.mark.parametrize("keys", [[], ["1"], ["0", "1"], ["0", "0"], [0], [["0"]]])
def test_a_wrong_list_of_storages_is_refused(tmp_path, keys):
    path = tmp_path / "file"
    write_legacy(path, tensor_program(), {"0": torch.arange(6.0)})
    path.write_bytes(path.read_bytes().replace(pickle.dumps(["0"], 2), pickle.dumps(keys, 2)))
    with pytest.raises(ValueError):
        read_tensor(path)


# Hostile files


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def call(module: str, attribute: str, *arguments: bytes) -> bytes:
    return name(module, attribute) + b"(" + b"".join(arguments) + b"tR"


TOUCH = "touch was-run"
SYSTEM = call("os", "system", value(TOUCH))
CALLED = """
    os.system posix.system __builtin__.eval builtins.eval builtins.exec builtins.open builtins.__import__
    builtins.getattr builtins.pow builtins.bytearray builtins.map builtins.dict.update subprocess.Popen
    importlib.import_module functools.partial operator.methodcaller pickle.loads torch.load torch.hub.load
    torch.storage._load_from_bytes torch._utils._rebuild_device_tensor_from_numpy torch._utils._set_obj_state
    numpy.core.multiarray._reconstruct copyreg._reconstructor copy_reg._reconstructor copyreg.__newobj__
    codecs.decode _codecs.encode
"""
# With Python's own unpickler, each of these creates the file `was-run` or does something else that is not allowed.
MALICIOUS = {
    **{called: call(*called.rsplit(".", 1), value(TOUCH)) for called in CALLED.split()},
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
    "appended to a class": name("sys", "path") + value("/tmp") + b"a",
    "added to a class": name("a", "b") + b"(K\x01\x90",
    "call of a record": name("a", "B") + b")\x81)R",
    "call of a text": value("os.system") + value((TOUCH,)) + b"R",
    "buffer": b"\x97",
}


@pytest.mark.parametrize("program", MALICIOUS.values(), ids=MALICIOUS)
def test_a_pickle_that_would_run_code_is_refused(program, tmp_path):
    for start in (b"\x80\x02", b"\x80\x04\x95" + struct.pack("<Q", len(program) + 1), b""):
        path = torch_zip(tmp_path / "file", start + program + b".", {})
        with pytest.raises(ValueError, match=f"cannot read {path}"), watched() as events:
            read_saved_object(path)
        assert set(events) <= {"open"}


def test_the_audit_hook_detects_what_plain_unpickling_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with watched() as events:
        pickle.loads(SYSTEM + b".")
    assert {"pickle.find_class", "os.system"} <= set(events)
    assert (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    "program",
    [
        name("os", "system") + b")\x81",
        name("subprocess", "Popen") + value((["touch", "was-run"],)) + b"\x81",
        b"(ios\nabort\n",
        name("os", "_Environ") + b")\x81" + value("PATH") + value("") + b"s",
        name("a", "B") + b")\x81}" + value("__class__") + name("os", "system") + b"sb",
        name("a", "B") + b")\x81}" + value("__setstate__") + name("os", "system") + b"sb" + value(TOUCH) + b"b",
        name("a", "B") + b")\x81}" + value("__reduce__") + name("os", "system") + b"sb",
        name("a", "B") + b")\x81(N}" + value("full_name") + name("os", "system") + b"stb",
    ],
)
def test_names_that_are_not_called_stay_inert(program, tmp_path):
    with watched() as events:
        loaded = load(b"\x80\x02" + program + b".", tmp_path)
    assert set(events) <= {"open"}
    assert isinstance(loaded, Record)
    assert loaded.full_name in ("os.system", "os.abort", "os._Environ", "subprocess.Popen", "a.B")


@pytest.mark.parametrize("part", range(5))
def test_every_pickle_of_the_older_format_is_checked(tmp_path, part):
    canary = tmp_path / "was-run"
    parts = [pickle.dumps(value, 2) for value in LEGACY_HEAD] + [tensor_program(), pickle.dumps(["0"], 2)]
    parts[part] = pickle.dumps(MakesAFolder(canary), 2)
    (tmp_path / "file").write_bytes(b"".join(parts) + struct.pack("<q", 6) + SIX_NUMBERS)
    with pytest.raises(ValueError, match="the pickle calls"):
        read_saved_object(tmp_path / "file")
    assert not canary.exists()


@pytest.mark.parametrize("save", [save_in_zip, save_in_legacy_format, save_as_torch_0_3])
def test_reading_only_opens_the_file(tmp_path, monkeypatch, save):
    """The current folder may contain files with the names of the authors' modules."""
    for module in ("model", "ON_LSTM", "splitcross"):
        (tmp_path / f"{module}.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    save(onlstm_checkpoint(), tmp_path / "file")
    with watched() as events:
        content, _ = read_saved_object(tmp_path / "file")
    assert all(isinstance(record, Record) for record in content) and len(content) == 3
    assert set(events) == {"open"}


COMPRESSED = "its entries are compressed or overlap"


def check_refused_with_little_memory(path, message="cannot read"):
    with memory_below(60_000_000), pytest.raises(ValueError, match=message):
        read_saved_object(path)


HUGE = 1 << 40
COPY_AS_SET = name("__builtin__", "set") + b"h\x00\x85R"
BOMBS = {
    "text": b"\x8d" + struct.pack("<Q", HUGE) + b"abc.",
    "text below 4 GiB": b"X" + struct.pack("<I", 0xFFFFFFFF) + b"abc.",
    "bytes of Python 2": b"T" + struct.pack("<i", 0x7FFFFFFF) + b"abc.",
    "buffer": b"\x96" + struct.pack("<Q", HUGE) + b"abc.",
    "frame": b"\x95" + struct.pack("<Q", HUGE) + b"N",
    "integer": b"\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"abc.",
    "negative size": b"\x8b" + struct.pack("<i", -5) + b"abc.",
    "long decimal": b"L" + b"9" * 100_000 + b"L\n.",
    "memo": b"](N" + b"r" + struct.pack("<I", 0xFFFFFFFF) + b"e.",
    "operations": b"N0" * MAX_OPERATIONS + b"N.",
    "marks": b"(" * 2 * MAX_OPERATIONS + b".",
    "classes": b"".join(name("a", f"B{number}") + b"0" for number in range(20_000)) + b"N.",
    "copies of a name": value("a" * 100_000) + b"q\x000" + 10_000 * b"h\x00h\x00\x93" + b"N.",
}


@pytest.mark.parametrize("program", BOMBS.values(), ids=BOMBS)
def test_a_small_pickle_uses_little_memory(program, tmp_path):
    check_refused_with_little_memory(torch_zip(tmp_path / "file", program, {}))


@pytest.mark.parametrize(
    "program",
    [
        b"N" + b"\x85" * 40_000,
        b"}N" + b"\x85" * 40_000 + b"Ns",
        b"(" * 20_000 + b"l" * 20_000,
        (b"ca\nB\n)\x81q\x00" + (b"ca\nB\n)\x81" * 12_000) + b"b" * 12_000),
        b"}" + b"N}" * 15_000 + b"s" * 15_000,
        b"]q\x00h\x00ah\x00a",
        b"]" + b"2\x86" * 1000,
        b"](" + b"K\x01" * 10_000 + b"eq\x000" + 6_000 * (COPY_AS_SET + b"0") + b"N",
    ],
    ids=["tuples", "key", "lists", "records", "dictionaries", "itself", "doubled", "copies of a list"],
)
def test_deep_nesting_and_repetition_are_harmless(program, tmp_path):
    with memory_below(30_000_000):
        load(program + b".", tmp_path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_bomb_is_not_unpacked(tmp_path, compression):
    program = b"\x80\x02X" + struct.pack("<I", 8 * 10**7) + bytes(8 * 10**7) + b"."
    check_refused_with_little_memory(torch_zip(tmp_path / "pickle", program, {}, compression), COMPRESSED)
    with zipfile.ZipFile(tmp_path / "storage", "w") as archive:
        archive.writestr("file/data.pkl", tensor_program(10**7, 0, (10**7,), (1,)))
        archive.writestr("file/data/0", bytes(4 * 10**7), compression)
    check_refused_with_little_memory(tmp_path / "storage", COMPRESSED)


def test_overlapping_entries_are_refused(tmp_path):
    """Two hundred nested storages, each with the rest of the file, would need 100 MB for a file of 500 kB."""
    content, entries = bytes(500_000), []
    for key in reversed(range(200)):
        entry = zipfile.ZipInfo(f"file/data/{key}")
        entry.CRC, entry.file_size, entry.compress_size = zlib.crc32(content), len(content), len(content)
        content = entry.FileHeader() + content
        entries.append((entry, len(content)))
    path = tmp_path / "file"
    path.write_bytes(content)
    with zipfile.ZipFile(path, "a") as archive:
        for entry, distance in entries:
            entry.header_offset = len(content) - distance
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry
        archive.writestr("file/data.pkl", b"\x80\x02N.")
    check_refused_with_little_memory(path, COMPRESSED)


@pytest.fixture(scope="module")
def checkpoint_parts(tmp_path_factory):
    """Pickle and storages of a zip file, and a complete file of the older format."""
    folder = tmp_path_factory.mktemp("files")
    checkpoint = onlstm_checkpoint(vocab_size=5, embedding_size=2, hidden_size=2, chunk_size=1, num_layers=2)
    save_in_zip(checkpoint, folder / "zip")
    save_as_torch_0_3(checkpoint, folder / "legacy")
    with zipfile.ZipFile(folder / "zip") as archive:
        program, names = archive.read("zip/data.pkl"), [name for name in archive.namelist() if "/data/" in name]
        storages = {name.removeprefix("zip/data/"): archive.read(name) for name in names}
    return program, storages, (folder / "zip").read_bytes(), (folder / "legacy").read_bytes()


def read_all(content, storages):
    pending, seen = [content], set()
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        with suppress(ValueError):
            tensor_of(found, storages)
        if isinstance(found, Record):
            pending += [*found.arguments, *found.items.values(), found.state]
        elif isinstance(found, (dict, list, tuple)):
            pending += found.values() if isinstance(found, dict) else found


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=mutations())
def test_damaged_files_are_read_or_refused(tmp_path, checkpoint_parts, changes):
    program, storages, whole_zip, legacy = checkpoint_parts
    torch_zip(tmp_path / "pickle", mutated(program, changes), storages)
    (tmp_path / "zip").write_bytes(mutated(whole_zip, changes))
    (tmp_path / "legacy").write_bytes(mutated(legacy, changes))
    for name in ("pickle", "zip", "legacy"):
        with suppress(ValueError):
            read_all(*read_saved_object(tmp_path / name))


@both_formats
def test_a_truncated_file_is_refused(tmp_path, checkpoint_parts, is_zip):
    content = checkpoint_parts[2] if is_zip else checkpoint_parts[3]
    for length in [*range(0, len(content), 101), len(content) - 1]:
        (tmp_path / "file").write_bytes(content[:length])
        with pytest.raises(ValueError, match="cannot read"):
            read_saved_object(tmp_path / "file")


@given(program=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_random_pickles_are_read_or_refused(program, tmp_path):
    with suppress(ValueError):
        load(program, tmp_path)
