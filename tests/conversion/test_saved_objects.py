import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from contextlib import suppress
from io import BytesIO

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from onlstm_hf.conversion.restricted_unpickler import Record
from onlstm_hf.conversion.saved_objects import load_saved_object
from tests.helpers.original_files import (
    LEGACY_HEAD,
    MakesAFolder,
    importable_original_code,
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


def save(value, path, is_zip=True):
    torch.save(value, path, _use_new_zipfile_serialization=is_zip)
    return path


def torch_zip(path, program: bytes, storages: dict[str, bytes], compression=zipfile.ZIP_STORED, **entries):
    """A zip file as `torch.save` writes it, with any pickle."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("file/data.pkl", program)
        for name, content in entries.items():
            archive.writestr(f"file/{name}", content)
        for key, content in storages.items():
            archive.writestr(f"file/data/{key}", content)
    return path


def tensor_program(
    num_elements=6, offset=0, sizes=(2, 3), strides=(3, 1), key="0", storage_type=b"ctorch\nFloatStorage\n", view=b""
) -> bytes:
    """The pickle of one tensor."""

    def part(value):
        return pickle.dumps(value, protocol=2)[2:-1]

    storage = part("storage") + storage_type + part(key) + part("cpu") + part(num_elements) + view
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + storage + b"tQ" + part(offset) + part(sizes) + part(strides)
    ) + b"\x89ccollections\nOrderedDict\n)RtR."


SIX_NUMBERS = torch.arange(6.0).numpy().tobytes()


def is_same(read, saved) -> bool:
    return type(read) is type(saved) is torch.Tensor and read.dtype == saved.dtype and torch.equal(read, saved)


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_all_common_types_are_read(tmp_path, dtype, is_zip):
    saved = (torch.arange(-12, 12) * 0.7).reshape(2, 3, 4).to(getattr(torch, dtype))
    assert is_same(load_saved_object(save(saved, tmp_path / "file", is_zip)), saved)


@pytest.mark.parametrize("is_zip", [True, False])
def test_views_scalars_and_parameters_are_read(tmp_path, is_zip):
    matrix = torch.arange(20.0).reshape(4, 5)
    saved = [matrix.t(), matrix[1:3, ::2], matrix[2, 3], torch.tensor(7), torch.zeros(0), matrix[None, :, :]]
    read = load_saved_object(save([*saved, torch.nn.Parameter(matrix)], tmp_path / "file", is_zip))
    assert all(map(is_same, read, [*saved, matrix]))
    assert not read[-1].requires_grad
    assert read[0].untyped_storage().data_ptr() == read[1].untyped_storage().data_ptr()


@pytest.mark.parametrize("is_zip", [True, False])
def test_modules_and_optimizers_are_records(tmp_path, is_zip):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.25))
    read = load_saved_object(save([module, torch.optim.Adam(module.parameters())], tmp_path / "file", is_zip))
    assert [record.class_name for record in read] == [
        "torch.nn.modules.container.Sequential",
        "torch.optim.adam.Adam",
    ]
    linear, norm, dropout = read[0].state["_modules"].values()
    assert is_same(linear.state["_parameters"]["weight"], module[0].weight.detach())
    assert is_same(norm.state["_buffers"]["running_var"], module[1].running_var)
    assert dropout.state["p"] == 0.25


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_state_dict_is_read_as_torch_reads_it(tmp_path, is_zip):
    path = save(torch.nn.LSTM(3, 4, 2).state_dict(), tmp_path / "file", is_zip)
    read, expected = load_saved_object(path), torch.load(path, weights_only=True)
    assert list(read) == list(expected)
    assert all(is_same(read[name], expected[name]) for name in expected)


def test_source_code_in_the_older_format_is_skipped(tmp_path):
    save_as_torch_0_3([torch.nn.Linear(2, 3)], tmp_path / "file")
    assert b"class Linear(nn.Module)" in (tmp_path / "file").read_bytes()
    (record,) = load_saved_object(tmp_path / "file")
    assert record.state["_parameters"]["weight"].shape == (3, 2)
    assert record.state["_backend"].class_name == "torch.nn.backends.thnn.THNNFunctionBackend"


def test_a_part_of_a_storage_is_read(tmp_path):
    program = tensor_program(6, 1, (2,), (1,), view=pickle.dumps(("7", 2, 3), 2)[2:-1])
    write_legacy(tmp_path / "file", program, {"0": torch.arange(6.0)})
    assert load_saved_object(tmp_path / "file").tolist() == [3, 4]


@pytest.mark.parametrize("view", [("7", 5, 2), ("7", -1, 2), ("7", 0, 7), ("7", 0), ["7", 0, 1], ("7", "0", 1), 5])
def test_a_part_outside_of_its_storage_is_refused(tmp_path, view):
    program = tensor_program(6, 0, (1,), (1,), view=pickle.dumps(view, 2)[2:-1])
    write_legacy(tmp_path / "file", program, {"0": torch.arange(6.0)})
    with pytest.raises(ValueError, match="part of a storage"):
        load_saved_object(tmp_path / "file")


IMPOSSIBLE_TENSORS = {
    "larger than the storage": {"sizes": (3, 3)},
    "beyond the storage": {"offset": 1},
    "long steps": {"strides": (4, 1)},
    "negative offset": {"offset": -1},
    "negative step": {"strides": (-3, 1)},
    "negative size": {"sizes": (-2, 3)},
    "repeated without end": {"sizes": (10**9, 10**9), "strides": (0, 0)},
    "repeated": {"sizes": (3, 3), "strides": (1, 0)},
    "too many dimensions": {"sizes": (1,) * 9, "strides": (1,) * 9},
    "fewer steps than sizes": {"strides": (1,)},
    "sizes that are a list": {"sizes": [2, 3]},
    "size that is no number": {"sizes": (2, "3")},
    "size that is no integer": {"sizes": (2, 3.0)},
    "offset that is no number": {"offset": None},
    "huge offset": {"offset": 2**100},
    "huge step": {"sizes": (1,), "strides": (2**70,)},
    "storage of more numbers than the file": {"num_elements": 10**12},
    "storage of fewer numbers than its entry": {"num_elements": 5, "sizes": (2, 2), "strides": (2, 1)},
    "storage of more numbers than its entry": {"num_elements": 7},
    "negative number of elements": {"num_elements": -1},
    "number of elements that is no number": {"num_elements": "6"},
    "storage that is missing": {"key": "1"},
    "storage outside of the folder": {"key": "../data.pkl"},
    "key that is no text": {"key": 0},
    "untyped storage": {"storage_type": b"ctorch\nUntypedStorage\n"},
    "storage of a strange class": {"storage_type": b"cos\nFloatStorage\n"},
    "storage of a text": {"storage_type": b"U\x0cFloatStorage"},
}


@pytest.mark.parametrize("fields", IMPOSSIBLE_TENSORS.values(), ids=IMPOSSIBLE_TENSORS)
def test_an_impossible_tensor_is_refused(tmp_path, fields):
    program = tensor_program(**fields)
    torch_zip(tmp_path / "zip", program, {"0": SIX_NUMBERS})
    write_legacy(tmp_path / "legacy", program, {"0": torch.arange(6.0)})
    for path in (tmp_path / "zip", tmp_path / "legacy"):
        with pytest.raises(ValueError, match=f"cannot read {path}"):
            load_saved_object(path)


def test_the_files_of_these_tests_are_read_where_nothing_is_wrong(tmp_path):
    program = tensor_program()
    torch_zip(tmp_path / "zip", program, {"0": SIX_NUMBERS})
    write_legacy(tmp_path / "legacy", program, {"0": torch.arange(6.0)})
    for path in (tmp_path / "zip", tmp_path / "legacy"):
        assert is_same(load_saved_object(path), torch.arange(6.0).reshape(2, 3))


def peak_memory(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_refused_with_little_memory(path, message):
    def work():
        with pytest.raises(ValueError, match=message):
            load_saved_object(path)

    assert peak_memory(work) < 60_000_000


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_bomb_is_not_unpacked(tmp_path, compression):
    torch_zip(
        tmp_path / "pickle", b"\x80\x02X" + struct.pack("<I", 8 * 10**7) + bytes(8 * 10**7) + b".", {}, compression
    )
    check_refused_with_little_memory(tmp_path / "pickle", "compressed")
    program = tensor_program(10**7, 0, (10**7,), (1,))
    with zipfile.ZipFile(tmp_path / "storage", "w") as archive:
        archive.writestr("file/data.pkl", program)
        archive.writestr("file/data/0", bytes(4 * 10**7), compression)
    check_refused_with_little_memory(tmp_path / "storage", "more numbers than fit|compressed")


def test_entries_that_overlap_are_not_read_again_and_again(tmp_path):
    """A hundred storages that are one and the same megabyte of the file."""
    content = bytes(1_000_000)
    tensors = b"".join(tensor_program(250_000, 0, (1,), (1,), key=str(key))[2:-1] for key in range(100))
    torch_zip(tmp_path / "file", b"\x80\x02](" + tensors + b"e.", {"0": content})
    with zipfile.ZipFile(tmp_path / "file", "a") as archive:
        for key in range(1, 100):
            entry = zipfile.ZipInfo(f"file/data/{key}")
            original = archive.getinfo("file/data/0")
            for field in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(entry, field, getattr(original, field))
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry
        archive._didModify = True
    check_refused_with_little_memory(tmp_path / "file", "more numbers than fit")


def test_a_pickle_beyond_the_limit_is_refused(tmp_path):
    torch_zip(tmp_path / "file", pickle.dumps("a" * (1 << 25)), {})
    check_refused_with_little_memory(tmp_path / "file", "cannot read")


def test_a_damaged_entry_is_noticed(tmp_path):
    path = torch_zip(tmp_path / "file", tensor_program(), {"0": SIX_NUMBERS})
    content = path.read_bytes()
    path.write_bytes(content.replace(SIX_NUMBERS, SIX_NUMBERS[:-1] + b"\x01"))
    with pytest.raises(ValueError, match="the zip file is damaged"):
        load_saved_object(path)


def test_big_endian_numbers_are_refused(tmp_path):
    torch_zip(tmp_path / "zip", tensor_program(), {"0": SIX_NUMBERS}, byteorder="big")
    system = {**LEGACY_HEAD[2], "little_endian": False}
    write_legacy(tmp_path / "legacy", tensor_program(), {"0": torch.arange(6.0)}, head=(*LEGACY_HEAD[:2], system))
    for path in (tmp_path / "zip", tmp_path / "legacy"):
        with pytest.raises(ValueError, match="big-endian"):
            load_saved_object(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    for content in (b"", b"text", b"\x80\x02N.", pickle.dumps({"a": 1}), pickle.dumps(1001, 2), os.urandom(400)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read {path}"):
            load_saved_object(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "text")
    with pytest.raises(ValueError, match=r"none of torch\.save"):
        load_saved_object(path)
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), BytesIO())
    with pytest.raises(ValueError, match=r"torch 0\.1\.10 and older, are not supported"):
        load_saved_object(path)


@pytest.mark.parametrize("head", [(1, 1001, {}), (LEGACY_HEAD[0], 1002, {}), (*LEGACY_HEAD[:2], [1]), LEGACY_HEAD[:2]])
def test_another_version_of_the_older_format_is_refused(tmp_path, head):
    write_legacy(tmp_path / "file", tensor_program(), {"0": torch.arange(6.0)}, head=head)
    with pytest.raises(ValueError, match="cannot read"):
        load_saved_object(tmp_path / "file")


@pytest.mark.parametrize("keys", [[], ["1"], ["0", "1"], "0", ["0", "0"], [0], [["0"]]])
def test_a_wrong_list_of_storages_is_refused(tmp_path, keys):
    path = tmp_path / "file"
    write_legacy(path, tensor_program(), {"0": torch.arange(6.0)})
    path.write_bytes(path.read_bytes().replace(pickle.dumps(["0"], 2), pickle.dumps(keys, 2)))
    with pytest.raises(ValueError, match="cannot read"):
        load_saved_object(path)


def test_missing_files_and_folders_are_named(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match=f"there is no file {path}"):
            load_saved_object(path)


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("place", ["alone", "in a list", "in a module", "in an optimizer", "as a key"])
def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path, is_zip, place):
    canary, module = tmp_path / "was-run", torch.nn.Linear(1, 1)
    malicious = MakesAFolder(canary)
    value = {"alone": malicious, "in a list": [[torch.ones(1), malicious]], "as a key": {malicious: 1}}.get(place)
    if place == "in a module":
        value = module
        module.extra = malicious
    if place == "in an optimizer":
        value = torch.optim.SGD(module.parameters(), lr=0.1)
        value.param_groups[0]["lr"] = malicious
    path = save(value, tmp_path / "file", is_zip)
    with pytest.raises(ValueError, match=r"the pickle calls '(posix|nt)\.mkdir'"):
        load_saved_object(path)
    assert not canary.exists()


@pytest.mark.parametrize("part", range(5))
def test_every_pickle_of_the_older_format_is_guarded(tmp_path, part):
    canary = tmp_path / "was-run"
    parts = [pickle.dumps(value, 2) for value in LEGACY_HEAD] + [tensor_program(), pickle.dumps(["0"], 2)]
    parts[part] = pickle.dumps(MakesAFolder(canary), 2)
    (tmp_path / "file").write_bytes(b"".join(parts) + struct.pack("<q", 6) + SIX_NUMBERS)
    with pytest.raises(ValueError, match="the pickle calls"):
        load_saved_object(tmp_path / "file")
    assert not canary.exists()


@pytest.mark.parametrize("save", [save_in_zip, save_in_legacy_format, save_as_torch_0_3])
def test_nothing_happens_but_that_the_file_is_opened(tmp_path, monkeypatch, save):
    """The modules of the authors' code have names that the current folder may have a file of."""
    for name in ("model", "ON_LSTM", "splitcross"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    save(onlstm_checkpoint(), tmp_path / "file")
    load_saved_object(tmp_path / "file")  # what this package itself imports late
    with watched() as events:
        loaded = load_saved_object(tmp_path / "file")
    assert [type(value) for value in loaded] == [Record] * 3
    assert set(events) - {"builtins.id"} == {"open"}  # the identity of an object, which tensors ask for


@pytest.fixture(scope="module")
def checkpoint_parts(tmp_path_factory):
    """A zip file's pickle and storages, and a whole file of the older format."""
    folder = tmp_path_factory.mktemp("files")
    checkpoint = onlstm_checkpoint(vocab_size=5, embedding_size=2, hidden_size=2, chunk_size=1, num_layers=2)
    with importable_original_code():
        torch.save(checkpoint, folder / "zip")
    save_as_torch_0_3(checkpoint, folder / "legacy")
    with zipfile.ZipFile(folder / "zip") as archive:
        program = archive.read("zip/data.pkl")
        storages = {
            name.removeprefix("zip/data/"): archive.read(name) for name in archive.namelist() if "/data/" in name
        }
    return program, storages, (folder / "zip").read_bytes(), (folder / "legacy").read_bytes()


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
            load_saved_object(tmp_path / name)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_that_is_cut_off_is_refused(tmp_path, checkpoint_parts, is_zip):
    content = checkpoint_parts[2] if is_zip else checkpoint_parts[3]
    for length in [*range(0, len(content), 101), len(content) - 1]:
        (tmp_path / "file").write_bytes(content[:length])
        with pytest.raises(ValueError, match="cannot read"):
            load_saved_object(tmp_path / "file")
