"""Evaluation mode of models within a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module, gradients: bool = False) -> Iterator[None]:
    """Switches dropout and changes of batch statistics off within the block, and then restores every module's mode.

    The mode is the model's own, which all threads see: several threads may use a model that is in evaluation mode.

    Args:
        model: any module.
        gradients: whether operations are recorded for a backward pass.
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
