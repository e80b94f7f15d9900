"""Evaluation mode of models within a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import nn

_LOCK = Lock()
# For each module in evaluation mode: in how many blocks it is, and its mode before the first of them.
_BLOCKS: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


@contextmanager
def evaluation_mode(model: nn.Module, gradients: bool = False) -> Iterator[None]:
    """Switches dropout and changes of batch statistics off within the block, and then restores every module's mode.

    The mode is the model's own, which all threads see. Where blocks of several threads overlap, on one model or on
    models that share modules, it is evaluation until the last of them ends. (A copy of the modules would leave the
    mode alone, but not what is bound to the originals: the `forward` that Accelerate wraps, or a compiled one.)

    Args:
        model: any module.
        gradients: whether operations are recorded for a backward pass.
    """
    modules = list(model.modules())
    with _LOCK:
        for module in modules:
            num_blocks, was_training = _BLOCKS.get(module, (0, module.training))
            _BLOCKS[module] = num_blocks + 1, was_training
        for module in modules:
            module.training = False
    try:
        with torch.inference_mode(not gradients):
            yield
    finally:
        with _LOCK:
            for module in modules:
                num_blocks, was_training = _BLOCKS.pop(module)
                if num_blocks > 1:
                    _BLOCKS[module] = num_blocks - 1, was_training
                else:
                    module.training = was_training
