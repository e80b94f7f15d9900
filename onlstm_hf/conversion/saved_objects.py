"""Safe reading of `torch.save` files: tensors are read, and every other object becomes an inert record.

Both formats are supported: the zip file of torch 1.6 and newer, and the sequence of pickles and raw numbers of torch
0.1.11 to 1.5. In both, the pickle refers to storages outside of it. `torch.load` with another `pickle_module` is no
substitute: it allocates the sizes that a file claims, and before torch 2.10 it reads beyond the end of storages.
"""

import math
import os
import pickle
import pickletools
import re
import struct
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.serialization import StorageType

# A model of a hundred modules needs about ten thousand operations and a few dozen classes. These limits bound the
# memory for a small file and the depth of its tuples, because hashing a deep tuple overflows Python's stack.
MAX_OPERATIONS, _MAX_CLASSES = 50_000, 1000
_MEMO_OPERATIONS = {"PUT", "BINPUT", "LONG_BINPUT"}
_PROTOCOL = 2  # of the pickles of torch.save
_LEGACY_MAGIC_NUMBER, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001

# Calls in the pickles of tensors, parameters and containers. Parameter, Variable, _rebuild_tensor and the backend
# occur in files of torch 0.3, the others in newer ones.
_TENSORS = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"}
_PARAMETERS = {
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
    "torch.autograd.variable.Variable",
}
_ORDERED_DICTIONARY = "collections.OrderedDict"
_CALLS = {
    *_TENSORS,
    *_PARAMETERS,
    _ORDERED_DICTIONARY,
    "collections.defaultdict",
    "__builtin__.set",
    "torch.Size",
    "torch.device",
    "torch.nn.backends.thnn._get_thnn_function_backend",
}


class Record:
    """Stands for an object of the file that is no list, tuple, plain dictionary, text or number.

    Each class and function that the file names is a subclass; nothing is imported.

    Attributes:
        full_name: module and name of its class, or of the function that would make it.
        arguments: arguments of the class or function.
        state: usually a dictionary of the object's attributes.
        items: the keys and values that are put into it, if it is a dictionary.
    """

    __slots__ = ("arguments", "items", "state")
    full_name: str

    def __new__(cls, *arguments):
        record = super().__new__(cls)
        record.arguments, record.items, record.state = arguments, {}, None
        return record

    def __init__(self, *_arguments):  # runs if the pickle calls the class, not if it only makes an instance
        if self.full_name not in _CALLS:
            raise ValueError(f"the pickle calls {ascii(self.full_name)[:200]}; code in a file is never run")

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        self.items[key] = value


class _Unpickler(pickle.Unpickler):
    """Reads one pickle from a stream: containers, text and numbers are restored, anything else becomes a `Record`."""

    def __init__(self, stream: BytesIO):
        start = stream.tell()  # all operations are checked before the first one is run
        for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
            if number >= MAX_OPERATIONS or (operation.name in _MEMO_OPERATIONS and argument >= MAX_OPERATIONS):
                raise ValueError(f"the pickle takes more than {MAX_OPERATIONS} operations")
            if operation.proto > _PROTOCOL:
                raise ValueError(f"the pickle uses {operation.name}, which torch.save does not")
        stream.seek(start)
        super().__init__(stream, encoding="latin1")  # for strings of Python 2
        self._classes: dict[str, type[Record]] = {}
        self.item_sizes: dict[str, int] = {}  # bytes per number of each storage, by the storage's key

    def find_class(self, module: str, name: str) -> type[Record]:
        full_name = f"{module}.{name}"
        if full_name not in self._classes:
            if len(self._classes) == _MAX_CLASSES:
                raise ValueError(f"the pickle names more than {_MAX_CLASSES} classes and functions")
            self._classes[full_name] = type("FileClass", (Record,), {"__slots__": (), "full_name": full_name})
        return self._classes[full_name]

    def persistent_load(self, identifier: Any) -> Any:
        """Returns the identifier of a storage unchanged, and a class without the source code stored with it."""
        kind, *fields = identifier
        if kind == "module":
            return fields[0]
        self.item_sizes[fields[1]] = _dtype_of(fields[0]).itemsize
        return identifier


def read_saved_object(path: str | os.PathLike) -> tuple[Any, dict[str, bytearray]]:
    """Reads an untrusted file of `torch.save` or safetensors; nothing that the file names is imported or called.

    Memory stays within a small multiple of the file's size, whatever sizes the file claims.

    Returns:
        The content, with a `Record` for any object that is no container, text or number; and the bytes of the storages
        for `tensor_of`.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if it has another format, is damaged, or calls functions other than those that rebuild tensors and
            containers.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path), {}
        stream = BytesIO(path.read_bytes())
        return _read_zip(stream) if stream.getvalue().startswith(b"PK\x03\x04") else _read_legacy(stream)
    except Exception as error:  # a damaged file can raise any exception
        reason = error if isinstance(error, ValueError) else f"it is damaged ({type(error).__name__}: {error})"
        raise ValueError(f"cannot read {path}: {reason}") from error


def _read_zip(stream: BytesIO) -> tuple[Any, dict[str, bytearray]]:
    with zipfile.ZipFile(stream) as archive:
        entries = archive.infolist()
        is_compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if is_compressed or sum(entry.file_size for entry in entries) > len(stream.getbuffer()):
            raise ValueError("its entries are compressed or overlap, unlike those of torch.save")
        pickles = [name for name in archive.namelist() if re.fullmatch(r"[^/]+/data\.pkl", name)]
        if len(pickles) != 1:
            raise ValueError("this zip file is not from torch.save: it has no data.pkl")
        content = _Unpickler(BytesIO(archive.read(pickles[0]))).load()
        folder = pickles[0].replace("/data.pkl", "/data/")
        names = [name for name in archive.namelist() if name.startswith(folder)]
        return content, {name.removeprefix(folder): bytearray(archive.read(name)) for name in names}


def _read_legacy(stream: BytesIO) -> tuple[Any, dict[str, bytearray]]:
    magic_number, protocol, system = (_Unpickler(stream).load() for _ in range(3))
    if (magic_number, protocol) != (_LEGACY_MAGIC_NUMBER, _LEGACY_PROTOCOL) or system["little_endian"] is not True:
        raise ValueError("it is not from torch.save, or from an unknown version of it, or from a big-endian machine")
    reader = _Unpickler(stream)
    content, keys, storages = reader.load(), _Unpickler(stream).load(), {}
    for key in keys:
        (num_elements,) = struct.unpack("<q", stream.read(8))
        num_bytes = num_elements * reader.item_sizes[key]
        storages[key] = bytearray(stream.read(num_bytes))
        if len(storages[key]) != num_bytes:
            raise ValueError("it is truncated: numbers of a tensor are missing")
    return content, storages


def tensor_of(value: Any, storages: dict[str, bytearray]) -> Any:
    """Returns the tensor or parameter of a record, on the CPU without gradients; other values unchanged.

    Raises:
        ValueError: if the tensor is sparse, quantized, of an unsupported type, or impossible.
    """
    try:
        while getattr(value, "full_name", None) in _PARAMETERS:
            value = value.arguments[0]
        if getattr(value, "full_name", None) not in _TENSORS:
            return value
        return _rebuild_tensor(storages, *value.arguments)
    except Exception as error:  # the arguments can be anything
        raise ValueError(f"a tensor is damaged: {error}") from error


def _rebuild_tensor(
    storages: dict[str, bytearray], storage: tuple, offset: int, sizes: tuple, strides: tuple, *_flags: Any
) -> torch.Tensor:
    _, storage_type, key, _device, num_elements, *view = storage
    dtype, numbers = _dtype_of(storage_type), storages[key]
    if len(numbers) != num_elements * dtype.itemsize:
        raise ValueError("a storage does not have the size that its tensors expect")
    if view and view[0] is not None:  # the tensor is in a part of the storage
        _key, start, num_elements = view[0]
        offset += start
    # Without this check, strides of 0 could make tensors that are larger than the file.
    if math.prod(sizes) > num_elements:
        raise ValueError("a tensor is larger than its storage")
    return torch.frombuffer(numbers, dtype=dtype).as_strided(sizes, strides, offset)


def _dtype_of(storage_type: Any) -> torch.dtype:
    module, _, name = storage_type.full_name.rpartition(".")
    if module not in ("torch", "torch.cuda"):
        raise ValueError("it has a storage of an unsupported type")
    return StorageType(name).dtype


def dictionary_of(value: Any) -> dict | None:
    """Returns a dictionary or ordered dictionary of the file as a `dict`; `None` for anything else."""
    if isinstance(value, dict):
        return value
    if getattr(value, "full_name", None) != _ORDERED_DICTIONARY:
        return None
    return dict(*value.arguments) | value.items  # Python 2 pickles the pairs as an argument
