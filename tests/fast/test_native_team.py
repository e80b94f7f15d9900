"""Build of the compiled operators, and distribution of their work among threads."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from onlstm_hf.fast.onlstm import native as onlstm
from onlstm_hf.fast.prpn import native as prpn
from onlstm_hf.fast.recurrence.native_library import NativeOperator
from tests.fast.test_fake_tensors import onlstm_inputs, prpn_inputs
from tests.helpers.native_operators import needs_operator
from tests.helpers.requirements import is_required

NUM_PARTS = 3
COMPUTE = "import sys; from tests.fast.test_native_team import compute; compute(sys.argv[1])"


@pytest.mark.skipif(sys.platform != "linux", reason="the operators are built on Linux")
@pytest.mark.skipif(shutil.which("c++") is None and not is_required("compiler"), reason="needs a C++ compiler")
@pytest.mark.parametrize("operator", [onlstm.OPERATOR, prpn.OPERATOR], ids=lambda operator: operator.name)
def test_operators_are_built_with_a_compiler_and_outdated_ones_are_ignored(operator):
    assert NativeOperator(operator.name, operator.interface).instruction_set() is not None
    assert NativeOperator(operator.name, operator.interface + 1).instruction_set() is None


def compute(path: str) -> None:
    """Writes the outputs of both operators for one problem, divided into `NUM_PARTS` parts.

    It calls them directly, because oneDNN's products are wrong if the system grants fewer threads than requested.
    """
    torch.set_num_threads(NUM_PARTS)
    found = []
    for module, make in ((onlstm, onlstm_inputs), (prpn, prpn_inputs)):
        torch.manual_seed(0)
        with torch.no_grad():
            inputs, options = make("cpu")
            trace = module.PATH.forward(inputs, options)
            grad_trace = type(trace)(*map(torch.randn_like, trace))
            found += [*trace, *module.PATH.backward(grad_trace, trace, inputs, options)]
    torch.save(found, path)


@needs_operator(onlstm.OPERATOR)
@needs_operator(prpn.OPERATOR)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_running_threads_do_the_work_of_missing_threads(num_threads, tmp_path, project_root):
    """A limit on threads simulates threads that never get a core."""
    options = {"env": {**os.environ, "OMP_THREAD_LIMIT": str(num_threads)}, "check": True, "timeout": 300}
    subprocess.run([sys.executable, "-c", COMPUTE, tmp_path / "few.pt"], cwd=project_root, **options)
    compute(tmp_path / "all.pt")
    few, expected = torch.load(tmp_path / "few.pt"), torch.load(tmp_path / "all.pt")
    assert len(few) == len(expected) > 10
    assert all(map(torch.equal, few, expected))
