"""Files in the format of the authors' scripts, whose classes are importable only temporarily, and damaged files."""

import codecs
import os
import pickle
import pickletools
import struct
import sys
import tracemalloc
import types
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import hypothesis.strategies as st
import torch
from torch import nn

LEGACY_HEAD = (
    0x1950A86A20F9469CFC6C,
    1001,
    {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}},
)


def original_class(name: str, base: type = nn.Module) -> type:
    module, _, class_name = name.rpartition(".")
    return type(class_name, (base,), {"__module__": module, "__qualname__": class_name})


class _Backend:
    """Functions of torch 0.3 to which its modules refer; pickled as a call."""

    def __reduce__(self):
        return _get_thnn_function_backend, ()


def _get_thnn_function_backend():
    raise AssertionError("called")


_get_thnn_function_backend.__module__ = "torch.nn.backends.thnn"
NAMES = """
    model.RNNModel locked_dropout.LockedDropout ON_LSTM.ONLSTMStack ON_LSTM.ONLSTMCell splitcross.SplitCrossEntropyLoss
    model_PRPN.PRPN ParsingNetwork.ParsingNetwork ReadingNetwork.ReadingNetwork PredictNetwork.PredictNetwork
    LSTMCell.LSTMCell LSTMCell.LayerNorm
"""
CLASSES = {name: original_class(name) for name in NAMES.split()}
CLASSES["ON_LSTM.LinearDropConnect"] = original_class("ON_LSTM.LinearDropConnect", nn.Linear)


@contextmanager
def importable_original_code():
    """Makes the classes picklable in the block; outside, their modules do not exist."""
    modules = {"torch.nn.backends": types.ModuleType("torch.nn.backends")}
    for value in [*CLASSES.values(), _get_thnn_function_backend]:
        module = modules.setdefault(value.__module__, types.ModuleType(value.__module__))
        setattr(module, value.__name__, value)
    assert not modules.keys() & sys.modules.keys()
    sys.modules |= modules
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older format
            yield
    finally:
        for name in modules:
            del sys.modules[name]


def onlstm_checkpoint(vocab_size=15, embedding_size=8, hidden_size=12, chunk_size=4, num_layers=3, weight_dropout=0.3):
    """Returns [model, criterion, optimizer] with the attributes of the authors' `RNNModel` after an evaluation."""
    torch.manual_seed(0)
    model, stack = CLASSES["model.RNNModel"](), CLASSES["ON_LSTM.ONLSTMStack"]()
    model.lockdrop, stack.lockdrop = (CLASSES["locked_dropout.LockedDropout"]() for _ in range(2))
    # The modules have the dropouts of the first run; the attributes below have those of the last run, which are valid.
    model.idrop, model.hdrop, model.drop = nn.Dropout(0.9), nn.Dropout(0.9), nn.Dropout(0.9)
    model.encoder, model.decoder = nn.Embedding(vocab_size, embedding_size), nn.Linear(embedding_size, vocab_size)
    model.decoder.weight = model.encoder.weight
    model.rnn_type, model.ninp, model.nhid, model.nlayers = "LSTM", embedding_size, hidden_size, num_layers
    model.dropout, model.dropouti, model.dropouth, model.dropoute = 0.25, 0.5, 0.9, 0
    model.tie_weights, model.distance = True, (torch.rand(num_layers, 7, 2), torch.rand(num_layers, 7, 2))

    sizes = [embedding_size] + [hidden_size] * (num_layers - 1) + [embedding_size]
    cells = []
    for input_size, size in zip(sizes, sizes[1:], strict=False):
        cell = CLASSES["ON_LSTM.ONLSTMCell"]()
        rows = 4 * size + 2 * (size // chunk_size)
        cell.ih = nn.Sequential(nn.Linear(input_size, rows))
        cell.hh = CLASSES["ON_LSTM.LinearDropConnect"](size, rows)
        cell.hh.dropout = weight_dropout
        cell.hh._weight = cell.hh.weight.masked_fill(cell.hh.weight > 0, 0) if weight_dropout else cell.hh.weight
        cell.input_size, cell.hidden_size = input_size, size
        cell.chunk_size, cell.n_chunk = chunk_size, size // chunk_size
        cell.drop_weight_modules = [cell.hh]
        cells.append(cell)
    stack.cells, stack.dropout, stack.sizes = nn.ModuleList(cells), 0.4, sizes
    model.rnn = stack

    criterion = CLASSES["splitcross.SplitCrossEntropyLoss"]()
    criterion.splits, criterion.stats = [0, 100000000], defaultdict(list)
    optimizer = torch.optim.ASGD(model.parameters(), lr=30, t0=0, lambd=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad = None
    return [model, criterion, optimizer]


def state_dict_of(checkpoint) -> dict[str, torch.Tensor]:
    """Returns the weights of such a model with drop-connect, with the authors' names."""
    weights = checkpoint[0].state_dict()
    return {name: tensor.clone() for name, tensor in weights.items() if not name.endswith("._weight")}


def prpn_checkpoint(vocab_size=15, embedding_size=8, hidden_size=12, num_slots=4, lookback=3, num_layers=2):
    """Returns a model with the attributes of the authors' `PRPN` after an evaluation."""
    torch.manual_seed(0)
    names = "model_PRPN.PRPN", "ParsingNetwork.ParsingNetwork", "PredictNetwork.PredictNetwork"
    model, parser, predictor = (CLASSES[name]() for name in names)
    model.drop, model.idrop, model.rdrop = nn.Dropout(0.6), nn.Dropout(0.2), nn.Dropout(0)
    model.encoder, model.decoder = nn.Embedding(vocab_size, embedding_size), nn.Linear(embedding_size, vocab_size)
    model.decoder.weight = model.encoder.weight
    parser.gate = nn.Sequential(
        nn.Dropout(0.2),
        nn.Conv1d(embedding_size, hidden_size, lookback + 1),
        nn.BatchNorm1d(hidden_size),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Conv1d(hidden_size, 2, 1, groups=2),
        nn.Sigmoid(),
    )
    parser.nhid, parser.ninp, parser.nslots, parser.nlookback = hidden_size, embedding_size, num_slots, lookback
    parser.resolution, parser.hard = 0.25, False
    model.parser = parser

    layers = []
    for input_size in [embedding_size] + [hidden_size] * (num_layers - 1):
        layer, cell = CLASSES["ReadingNetwork.ReadingNetwork"](), CLASSES["LSTMCell.LSTMCell"]()
        cell.ih = nn.Sequential(nn.Linear(input_size, 4 * hidden_size), _layer_norm(4 * hidden_size))
        cell.hh = nn.Sequential(nn.Linear(hidden_size, 4 * hidden_size), _layer_norm(4 * hidden_size))
        cell.c_norm, layer.memory_rnn = _layer_norm(hidden_size), cell
        projection = nn.Linear(input_size + hidden_size, hidden_size)
        layer.projector_summ = nn.Sequential(nn.Dropout(0.2), projection, nn.Dropout(0.2))
        layers.append(layer)
    model.reader = nn.ModuleList(layers)
    projection = nn.Linear(hidden_size, hidden_size)
    predictor.projector_pred = nn.Sequential(nn.Dropout(0.2), projection, nn.Dropout(0.2))
    projection = nn.Linear(2 * hidden_size, embedding_size)
    predictor.ffd = nn.Sequential(nn.Dropout(0.2), projection, nn.BatchNorm1d(embedding_size), nn.Tanh())
    predictor.res, model.predictor = None, predictor
    model.attentions, model.gates = torch.rand(5, 2, num_layers + 3, num_slots), torch.rand(2, 5)
    return model


def _layer_norm(size):
    module = CLASSES["LSTMCell.LayerNorm"]()
    module.gamma, module.beta, module.eps = nn.Parameter(torch.rand(size)), nn.Parameter(torch.rand(size)), 1e-6
    return module


def save_in_zip(checkpoint, path):
    with importable_original_code():
        torch.save(checkpoint, path)


def save_in_legacy_format(checkpoint, path):
    with importable_original_code():
        torch.save(checkpoint, path, _use_new_zipfile_serialization=False)


def save_as_torch_0_3(checkpoint, path):
    """Saves like torch 0.3 under Python 2: byte strings, parameters as variables, backends, source code, views."""
    for module in (checkpoint[0] if isinstance(checkpoint, list) else checkpoint).modules():
        module._backend = _Backend()
        module._buffers.pop("num_batches_tracked", None)
    stream = BytesIO()
    pickler = _OldPickler(stream, protocol=2)
    with importable_original_code():
        pickler.dump(checkpoint)
    write_legacy(path, with_byte_strings(stream.getvalue()), pickler.storages)


def write_legacy(path, program: bytes, storages: dict[str, torch.Tensor], head=LEGACY_HEAD):
    content = b"".join(pickle.dumps(value, protocol=2) for value in head) + program
    content += pickle.dumps(list(storages), protocol=2)
    for elements in storages.values():
        content += struct.pack("<q", len(elements)) + elements.contiguous().view(torch.uint8).numpy().tobytes()
    path.write_bytes(content)


def with_byte_strings(program: bytes) -> bytes:
    """Converts the strings of a pickle to those of Python 2."""
    rewritten = b""
    operations = list(pickletools.genops(program))
    ends = [position for _, _, position in operations[1:]] + [len(program)]
    for (operation, argument, position), end in zip(operations, ends, strict=True):
        if operation.name == "BINUNICODE":
            text = argument.encode()
            size = b"U" + bytes([len(text)]) if len(text) < 256 else b"T" + struct.pack("<i", len(text))
            rewritten += size + text
        else:
            rewritten += program[position:end]
    return rewritten


class _OldPickler(pickle.Pickler):
    def __init__(self, stream, protocol):
        super().__init__(stream, protocol=protocol)
        self.storages: dict[str, torch.Tensor] = {}
        self.known_classes = set()

    def persistent_id(self, value):
        if isinstance(value, type) and issubclass(value, nn.Module) and value not in self.known_classes:
            self.known_classes.add(value)
            return "module", value, f"/home/someone/{value.__module__}.py", f"class {value.__name__}(nn.Module):\n" * 9
        if isinstance(value, torch.storage.TypedStorage):
            key = str(value.data_ptr())
            elements = torch.empty(0, dtype=value.dtype).set_(value)
            # A part of a larger storage, as shared memory causes.
            self.storages[key] = torch.cat([elements[:1], elements])
            view = (key + "0", 1, len(elements))
            return "storage", torch.FloatStorage, key, "cuda:0", len(elements) + 1, view
        return None

    def reducer_override(self, value):
        if isinstance(value, nn.Parameter):
            return nn.Parameter, (value.data,), (True, False, OrderedDict())
        if isinstance(value, torch.Tensor):
            sizes = tuple(value.shape), value.stride()
            return torch._utils._rebuild_tensor, (value.detach()._typed_storage(), value.storage_offset(), *sizes)
        return NotImplemented


class MakesAFolder:
    """Creates a folder when Python's own unpickler reads it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@st.composite
def mutations(draw):
    """Replaces, removes, inserts, copies or cuts off some bytes."""
    kinds = st.sampled_from(["replace", "remove", "insert", "copy", "cut"])
    change = st.tuples(kinds, st.floats(0, 1), st.floats(0, 1), st.binary(min_size=1, max_size=6))
    return draw(st.lists(change, min_size=1, max_size=4))


def mutated(content: bytes, changes) -> bytes:
    for kind, place, origin, new in changes:
        start, source = int(place * len(content)), int(origin * len(content))
        if kind == "cut":
            content = content[:start]
        else:
            new = {"remove": b"", "copy": content[source : source + 20]}.get(kind, new)
            content = content[:start] + new + content[start + (0 if kind == "insert" else len(new) or 3) :]
    return content


@contextmanager
def memory_below(num_bytes: int) -> Iterator[None]:
    """Fails if the peak memory of Python in the block is `num_bytes` or more."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()


_watching: list[list[str]] = []


def _record(event: str, _arguments: tuple) -> None:
    for events in _watching:
        events.append(event)


# Audit hook: Python calls it for imports, code, processes, files, and names that the unpickler looks up.
sys.addaudithook(_record)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collects the audit events of the block."""
    codecs.lookup("cp437")  # zipfile would import it for the first name that it reads
    _watching.append(events := [])
    try:
        yield events
    finally:
        _watching.clear()
