"""Sentences are parsed in bfloat16 where a CPU is clearly faster by it."""

import pytest
import torch

from onlstm_hf.parsing import precision
from onlstm_hf.parsing.precision import parsing_dtype


@pytest.mark.parametrize(
    ("speed", "gpu", "dtype"),
    [(0.6, False, "float32"), (1.4, False, "float32"), (1.5, False, "bfloat16"), (4.0, True, "float32")],
)
def test_the_speed_of_products_decides(monkeypatch, speed, gpu, dtype):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(precision, "bfloat16_speed", lambda: speed)
    assert parsing_dtype() == dtype
