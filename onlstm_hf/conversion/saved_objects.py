"""Safe reading of `torch.save` files: tensors are read, and every other object becomes an inert record.

Both formats are supported: the zip file of torch 1.6 and newer, and the sequence of pickles and raw numbers of torch
0.1.11 to 1.5. In both, the pickle refers to storages outside of it.
"""

import math
import os
import pickle
import pickletools
import struct
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

# A model of a hundred modules needs about ten thousand operations and a few dozen classes. These limits bound the
# memory for a small file and the depth of its tuples, because hashing a deep tuple overflows Python's stack.
MAX_OPERATIONS = 50_000
_MAX_CLASSES = 1000
_MAX_DIMENSIONS = 8
# torch.save writes protocol 2. Extension codes refer to classes that a program has registered in `copyreg`.
_PROTOCOL, _REFUSED_OPERATIONS = 2, {"EXT1", "EXT2", "EXT4"}
_MEMO_OPERATIONS = {"PUT", "BINPUT", "LONG_BINPUT"}

_LEGACY_MAGIC_NUMBER, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001

_DTYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_DTYPE_OF_STORAGE_TYPE = {
    f"{module}.{name}": dtype for name, dtype in _DTYPES.items() for module in ("torch", "torch.cuda")
}
# Calls in the pickles of tensors, parameters and containers. Parameter, Variable, _rebuild_tensor and the backend
# occur in files of torch 0.3, the others in newer ones.
_TENSORS = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"}
_PARAMETERS = {
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
    "torch.autograd.variable.Variable",
}
_DICTIONARIES = {"collections.OrderedDict", "collections.defaultdict"}
_OTHER_CALLS = {
    "builtins.set",
    "builtins.frozenset",
    "__builtin__.set",
    "__builtin__.frozenset",
    "torch.Size",
    "torch.device",
    "torch.nn.backends.thnn._get_thnn_function_backend",
}


class _FileClass(type):
    """Metaclass for the classes and functions that a file names: they are not imported, and only make records."""

    def __call__(cls, *arguments):
        if cls.full_name not in _TENSORS | _PARAMETERS | _DICTIONARIES | _OTHER_CALLS:
            name = ascii(cls.full_name)[:200]
            raise ValueError(f"the pickle calls {name}; code in a file is never run")
        return cls.__new__(cls, *arguments)


class Record:
    """Stands for an object of the file that is no list, tuple, plain dictionary, text or number.

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

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        self.items[key] = value


class _Unpickler(pickle.Unpickler):
    """Reads one pickle from a stream: containers, text and numbers are restored, anything else becomes a `Record`.

    Attributes:
        item_sizes: bytes per number of each storage that the pickle refers to, by the storage's key.
    """

    def __init__(self, stream: BytesIO):
        _check_operations(stream)
        super().__init__(stream, encoding="latin1")  # for strings of Python 2
        self._classes: dict[str, type[Record]] = {}
        self.item_sizes: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> type[Record]:
        full_name = f"{module}.{name}"
        if full_name not in self._classes:
            if len(self._classes) == _MAX_CLASSES:
                raise ValueError(f"the pickle names more than {_MAX_CLASSES} classes and functions")
            body = {"__slots__": (), "full_name": full_name}
            self._classes[full_name] = _FileClass("FileClass", (Record,), body)
        return self._classes[full_name]

    def persistent_load(self, identifier: Any) -> Any:
        """Returns the identifier of a storage unchanged, and a class without the source code stored with it."""
        kind, *fields = identifier
        if kind == "module":
            return fields[0]
        if kind != "storage":
            raise ValueError("the pickle is damaged: it refers to something that is no storage")
        self.item_sizes[fields[1]] = _dtype_of(fields[0]).itemsize
        return identifier


def _check_operations(stream: BytesIO) -> None:
    """Refuses a pickle with too many or unexpected operations before it is read."""
    start = stream.tell()
    for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
        if number >= MAX_OPERATIONS or (operation.name in _MEMO_OPERATIONS and argument >= MAX_OPERATIONS):
            raise ValueError(f"the pickle takes more than {MAX_OPERATIONS} operations")
        if operation.proto > _PROTOCOL or operation.name in _REFUSED_OPERATIONS:
            raise ValueError(f"the pickle uses {operation.name}, which torch.save does not")
    stream.seek(start)


class SavedObject:
    """The content of an untrusted `torch.save` file: nothing that the file names is imported or called.

    Memory stays within a small multiple of the file's size, whatever sizes the file claims.

    Attributes:
        content: containers, strings and numbers, and a `Record` for any other object, including tensors.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if it has another format, is damaged, or calls functions other than those that rebuild tensors and
            containers.
    """

    def __init__(self, path: str | os.PathLike):
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        stream = BytesIO(path.read_bytes())
        try:
            read = _read_zip if stream.getvalue().startswith(b"PK\x03\x04") else _read_legacy
            self.content, self._storages = read(stream)
        except ValueError as error:
            raise ValueError(f"cannot read {path}: {error}") from error
        except Exception as error:  # a damaged file can raise any exception
            raise ValueError(f"cannot read {path}: it is damaged ({type(error).__name__}: {error})") from error

    def tensor(self, record: Any) -> Any:
        """Returns the tensor or parameter of a record, on the CPU without gradients; other values unchanged.

        Raises:
            ValueError: if the tensor is sparse, quantized, of an unsupported type, or impossible.
        """
        while isinstance(record, Record) and record.full_name in _PARAMETERS:
            record = record.arguments[0] if record.arguments else None
        if not isinstance(record, Record) or record.full_name not in _TENSORS:
            return record
        try:
            return self._rebuild_tensor(*record.arguments)
        except ValueError:
            raise
        except Exception as error:  # its arguments can be anything
            raise ValueError(f"a tensor is damaged ({type(error).__name__}: {error})") from error

    def _rebuild_tensor(self, storage: tuple, offset: int, sizes: tuple, strides: tuple, *_flags: Any) -> torch.Tensor:
        _, storage_type, key, _device, num_elements, *view = storage
        dtype, numbers = _dtype_of(storage_type), self._storages[key]
        if len(numbers) != num_elements * dtype.itemsize:
            raise ValueError("a storage does not have the size that its tensors expect")
        if view and view[0] is not None:  # a part of the storage: (key, offset, size)
            _, start, num_elements = view[0]
            numbers = memoryview(numbers)[dtype.itemsize * start :][: dtype.itemsize * num_elements]
        # The second condition prevents strides of 0 from making tensors that are larger than the file.
        if len(sizes) > _MAX_DIMENSIONS or math.prod(sizes) > num_elements:
            raise ValueError("a tensor is larger than its storage")
        if 0 in sizes:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(numbers, dtype=dtype).as_strided(sizes, strides, offset)


def dictionary_of(value: Any) -> dict | None:
    """Returns a dictionary or ordered dictionary of the file as a `dict`; `None` for anything else."""
    if not isinstance(value, Record):
        return value if isinstance(value, dict) else None
    if value.full_name not in _DICTIONARIES:
        return None
    # Python 2 pickles the pairs of an ordered dictionary as an argument.
    pairs = value.arguments[0] if value.arguments and isinstance(value.arguments[0], list) else []
    try:
        return dict(pairs) | value.items
    except TypeError as error:
        raise ValueError("a dictionary is damaged") from error


def _dtype_of(storage_type: Any) -> torch.dtype:
    name = getattr(storage_type, "full_name", None)
    if name not in _DTYPE_OF_STORAGE_TYPE:
        raise ValueError("it has a storage of an unsupported type")
    return _DTYPE_OF_STORAGE_TYPE[name]


def _read_zip(stream: BytesIO) -> tuple[Any, dict[str, bytearray]]:
    with zipfile.ZipFile(stream) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("its entries are compressed, unlike those of torch.save")
        if sum(entry.file_size for entry in entries) > len(stream.getbuffer()):
            raise ValueError("its entries overlap, unlike those of torch.save")
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise ValueError("this zip file is not from torch.save: it has no data.pkl")
        folder = pickles[0].removesuffix("data.pkl")
        byte_order = f"{folder}byteorder"
        if byte_order in archive.namelist() and archive.read(byte_order) != b"little":
            raise ValueError("its numbers are big-endian, which is not supported")
        content = _Unpickler(BytesIO(archive.read(pickles[0]))).load()
        prefix = f"{folder}data/"
        names = [name for name in archive.namelist() if name.startswith(prefix)]
        return content, {name.removeprefix(prefix): bytearray(archive.read(name)) for name in names}


def _read_legacy(stream: BytesIO) -> tuple[Any, dict[str, bytearray]]:
    if _Unpickler(stream).load() != _LEGACY_MAGIC_NUMBER:
        raise ValueError("it is not a file of torch.save")
    protocol, system = _Unpickler(stream).load(), _Unpickler(stream).load()
    if protocol != _LEGACY_PROTOCOL or system["little_endian"] is not True:
        raise ValueError("it is from an unknown version of torch.save or a big-endian machine")
    reader = _Unpickler(stream)
    content, keys, storages = reader.load(), _Unpickler(stream).load(), {}
    for key in keys:
        (num_elements,) = struct.unpack("<q", stream.read(8))
        storages[key] = bytearray(stream.read(num_elements * reader.item_sizes[key]))
        if len(storages[key]) != num_elements * reader.item_sizes[key]:
            raise ValueError("it is truncated: numbers of a tensor are missing")
    return content, storages
