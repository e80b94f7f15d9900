"""Context manager for evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module, gradients: bool = False) -> Iterator[None]:
    """Puts a model into evaluation mode, with or without gradients, and then restores the mode of every module.

    All threads share the mode, so several threads may only use a model that is already in evaluation mode.
    """
    in_training = [module for module in model.modules() if module.training]
    for module in in_training:
        module.training = False
    try:
        with torch.inference_mode(not gradients):
            yield
    finally:
        for module in in_training:
            module.training = True
