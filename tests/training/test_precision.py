"""A run says where bfloat16 does not pay."""

import pytest

from training.loop import precision
from training.loop.precision import bfloat16_notice


@pytest.mark.parametrize(("speed", "said"), [(0.171, "at 0.17 times"), (1.0, "at 1 times"), (1.3, None)])
def test_only_a_cpu_that_gains_nothing_by_bf16_is_remarked(monkeypatch, speed, said):
    monkeypatch.setattr(precision, "bfloat16_speed", lambda: speed)
    notice = bfloat16_notice()
    assert notice is None if said is None else said in notice and "--mixed_precision no" in notice
