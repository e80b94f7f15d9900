"""Files of `torch.save` as data: tensors are read, and other objects become inert records (restricted_unpickler.py).

Two formats are read: the zip file of torch 1.6 and newer, and the sequence of pickles and raw numbers of torch 0.1.11
to 1.5. In both, the pickle refers to storages of numbers outside of it.
"""

import math
import os
import struct
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch

from .restricted_unpickler import Global, Record, unpickle

# Pickles hold everything but the numbers, and in the older format the source code of the modules.
MAX_PICKLE_BYTES = 1 << 24
_MAX_DIMENSIONS = 8

_LEGACY_MAGIC_NUMBER, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_TAR_MAGIC, _TAR_MAGIC_POSITION = b"ustar", 257

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


def load_saved_object(path: str | os.PathLike) -> Any:
    """Reads what `torch.save` wrote, whoever wrote it: nothing that the file names is imported or called.

    Memory stays within a small multiple of the file's size, whatever sizes it claims.

    Returns:
        Containers, strings and numbers; tensors (parameters, too), on the CPU and without gradients; a `Record` in
        place of an instance of any other class, such as a module, and a `Global` in place of a class or a function.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is of another format or damaged, calls functions that are not those that rebuild tensors
            and containers, or holds tensors that are sparse, quantized or of uncommon types.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with open(path, "rb") as file:
        head = file.read(_TAR_MAGIC_POSITION + len(_TAR_MAGIC))
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        try:
            if head.startswith(b"PK\x03\x04"):
                return _load_zip(file, size)
            if head.endswith(_TAR_MAGIC):
                raise ValueError(
                    "tar files, of torch 0.1.10 and older, are not supported; load it there and save its state_dict()"
                )
            return _load_legacy(file, size)
        except ValueError as error:
            raise ValueError(f"cannot read {path}: {error}") from error


def _load_zip(file: BinaryIO, size: int) -> Any:
    try:
        with zipfile.ZipFile(file) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
            if len(pickles) != 1:
                raise ValueError("this zip file is none of torch.save: it has no data.pkl")
            folder = pickles[0].removesuffix("data.pkl")
            byte_order = f"{folder}byteorder"
            if byte_order in archive.namelist() and _read_entry(archive, byte_order) != b"little":
                raise ValueError("its numbers are big-endian, which is not supported")
            storages = _Storages(size)
            loaded = unpickle(BytesIO(_read_entry(archive, pickles[0])), _FUNCTIONS, storages.load)
            for key, elements in storages.items():
                with _open_entry(archive, f"{folder}data/{key}", expected_size=elements.nbytes) as entry:
                    _read_into(entry, elements)
            return loaded
    except (zipfile.BadZipFile, EOFError, IndexError, OSError, RuntimeError, struct.error) as error:
        raise ValueError(f"the zip file is damaged: {error}") from error


def _read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    with _open_entry(archive, name) as entry:
        return entry.read(MAX_PICKLE_BYTES)


def _open_entry(archive: zipfile.ZipFile, name: str, expected_size: int | None = None) -> BinaryIO:
    try:
        entry = archive.getinfo(name)
    except KeyError as error:
        raise ValueError(f"it lacks {ascii(name)[:200]}") from error
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("its entries are compressed, which those of torch.save never are")
    if expected_size is not None and entry.file_size != expected_size:
        raise ValueError(f"{ascii(name)[:200]} has {entry.file_size} bytes, but {expected_size} are expected")
    return archive.open(entry)


def _load_legacy(file: BinaryIO, size: int) -> Any:
    if _load_next_pickle(file) != _LEGACY_MAGIC_NUMBER:
        raise ValueError("it is no file of torch.save")
    protocol, system = _load_next_pickle(file), _load_next_pickle(file)
    if protocol != _LEGACY_PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("it is of an unknown version of torch.save, or from a big-endian machine")

    storages = _Storages(size)
    loaded = _load_next_pickle(file, storages)
    keys = _load_next_pickle(file)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("it is damaged: expected the list of its storages")
    if set(keys) != {key for key, _ in storages.items()}:
        raise ValueError("it is damaged: it does not hold the storages that it refers to")
    expected = dict(storages.items())
    for key in keys:
        if file.read(8) != struct.pack("<q", len(expected[key])):
            raise ValueError("it is damaged or cut off: a storage is not of the size that its tensors have")
        _read_into(file, expected[key])
    return loaded


def _load_next_pickle(file: BinaryIO, storages: "_Storages | None" = None) -> Any:
    start = file.tell()
    stream = BytesIO(file.read(MAX_PICKLE_BYTES))
    loaded = unpickle(stream) if storages is None else unpickle(stream, _FUNCTIONS, storages.load)
    file.seek(start + stream.tell())
    return loaded


def _read_into(file: BinaryIO, elements: torch.Tensor) -> None:
    if file.readinto(elements.view(torch.uint8).numpy()) != elements.nbytes:
        raise ValueError("it is cut off: the numbers of a tensor end before their time")


class _Storages:
    """The storages that a pickle refers to, made here without their numbers, and together no larger than the file."""

    def __init__(self, file_size: int):
        self._bytes_left = file_size
        self._elements: dict[str, torch.Tensor] = {}

    def items(self) -> list[tuple[str, torch.Tensor]]:
        """The key of each storage, and its numbers as a one-dimensional tensor."""
        return list(self._elements.items())

    def load(self, identifier: Any) -> Any:
        """The object for a persistent id: a storage, or the name of a class that comes with its source code."""
        kind, *fields = identifier if type(identifier) is tuple and identifier else (None,)
        if kind == "module" and len(fields) == 3 and isinstance(fields[0], Global):
            return fields[0]
        if kind != "storage" or len(fields) not in (4, 5):
            raise ValueError("the pickle is damaged: it refers to something that is no storage")
        storage_type, key, _device, num_elements, *view = fields
        if not isinstance(storage_type, Global) or storage_type.name not in _DTYPE_OF_STORAGE_TYPE:
            raise ValueError("it has a storage of an unsupported type")
        if not isinstance(key, str):
            raise ValueError("the pickle is damaged: the key of a storage is no text")
        elements = self._reserve(key, _DTYPE_OF_STORAGE_TYPE[storage_type.name], num_elements)
        if view and view[0] is not None:
            elements = _part_of(elements, view[0])
        return _Storage(elements)

    def _reserve(self, key: str, dtype: torch.dtype, num_elements: Any) -> torch.Tensor:
        if not _is_size(num_elements):
            raise ValueError("the pickle is damaged: the size of a storage is no number")
        if key not in self._elements:
            self._bytes_left -= num_elements * dtype.itemsize
            if self._bytes_left < 0:
                raise ValueError("it claims to have more numbers than fit into it")
            self._elements[key] = torch.empty(num_elements, dtype=dtype)
        elements = self._elements[key]
        if elements.dtype != dtype or len(elements) != num_elements:
            raise ValueError("the pickle is damaged: it gives two types or sizes to one storage")
        return elements


class _Storage:
    """Wrapper of a storage that is not mistaken for a tensor."""

    def __init__(self, elements: torch.Tensor):
        self.elements = elements


def _part_of(elements: torch.Tensor, view: Any) -> torch.Tensor:
    """Returns a view of a storage in the older format: (key, offset, size)."""
    if type(view) is not tuple or len(view) != 3 or not _is_size(view[1]) or not _is_size(view[2]):
        raise ValueError("the pickle is damaged: expected the offset and size of a part of a storage")
    _key, offset, size = view
    if offset + size > len(elements):
        raise ValueError("the pickle is damaged: a part of a storage lies outside of it")
    return elements[offset : offset + size]


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _rebuild_tensor(storage: Any, offset: Any, sizes: Any, strides: Any, *_flags: Any) -> torch.Tensor:
    if not isinstance(storage, _Storage) or type(sizes) is not tuple or type(strides) is not tuple:
        raise ValueError("the pickle is damaged: a tensor needs a storage, sizes and strides")
    if (
        len(sizes) != len(strides)
        or len(sizes) > _MAX_DIMENSIONS
        or not all(map(_is_size, (offset, *sizes, *strides)))
    ):
        raise ValueError("the pickle is damaged: a tensor has impossible sizes or strides")
    if 0 in sizes:
        return storage.elements.new_empty(0)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    # The second condition keeps strides of 0 from making tensors that are larger than the file.
    if last >= len(storage.elements) or math.prod(sizes) > len(storage.elements):
        raise ValueError("the pickle is damaged: a tensor is larger than its storage")
    return storage.elements.as_strided(sizes, strides, storage.elements.storage_offset() + offset)


def _rebuild_parameter(tensor: Any, *_flags: Any) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError("the pickle is damaged: a parameter needs a tensor")
    return tensor


def _rebuild_size(sizes: Any) -> tuple:
    if type(sizes) is not tuple:
        raise ValueError("the pickle is damaged: a size must be a tuple")
    return sizes


# The functions and classes that the authors' files call: Parameter, Variable, _rebuild_tensor and the backend in files
# of torch 0.3, the others in newer ones.
_FUNCTIONS = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
    "torch.nn.parameter.Parameter": _rebuild_parameter,
    "torch.autograd.variable.Variable": _rebuild_parameter,
    "torch.Size": _rebuild_size,
    "torch.device": lambda *arguments: Record("torch.device", arguments),
    "torch.nn.backends.thnn._get_thnn_function_backend": lambda: Record("torch.nn.backends.thnn.THNNFunctionBackend"),
}
