"""Tests of the PRPN's Triton path in Triton's interpreter on the CPU.

`test_prpn_triton.py` runs this in another process, since the interpreter must be chosen before Triton is imported.
"""

import os

import pytest

from onlstm_hf.fast.prpn import operator as operator_module
from onlstm_hf.fast.prpn import triton as module
from onlstm_hf.fast.recurrence.step_graphs import KeptBuffers
from tests.helpers.cuda_graph_stand_in import stand_in_graphs  # noqa: F401
from tests.helpers.reading_problems import check

assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.fixture(autouse=True)
def triton_on_the_cpu(monkeypatch):
    path = module.PATH._replace(unsupported_reason=lambda sequence: None)
    monkeypatch.setitem(operator_module._PATHS, "triton", path)
    monkeypatch.setattr(module, "KEPT", KeptBuffers())


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 2), (2, 5, 3, 4), (3, 7, 4, 6), (1, 6, 5, 3), (2, 3, 15, 300)])
def test_it_computes_the_reference(sizes, masks):
    check(sizes, masks, "cpu")


def test_a_recorded_sequence_computes_the_reference(stand_in_graphs):  # noqa: F811
    for seed in range(module.RECORDED_AFTER + 3):
        check((2, 5, 3, 4), True, "cpu", seed)
    assert stand_in_graphs.recorded == 2  # one for each direction
    assert stand_in_graphs.replayed == 6
    check((2, 4, 3, 4), True, "cpu")
    assert stand_in_graphs.recorded == 2
