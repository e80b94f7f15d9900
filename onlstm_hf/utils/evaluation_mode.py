"""Models in evaluation mode for as long as a block runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """No dropout and no gradients within the block; the model's mode is what it was after it."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)
