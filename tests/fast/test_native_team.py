"""The compiled operators are built, and their work is done by whichever thread runs."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from onlstm_hf.fast.onlstm import native as onlstm
from onlstm_hf.fast.prpn import native as prpn
from onlstm_hf.fast.recurrence.native_library import NativeOperator
from onlstm_hf.fast.recurrence.tensor_tuples import flatten
from tests.fast.test_fake_tensors import onlstm_inputs, prpn_inputs
from tests.helpers.native_operators import needs_operator
from tests.helpers.requirements import is_required

NUM_PARTS = 3
COMPUTE = "import sys; from tests.fast.test_native_team import compute; compute(sys.argv[1])"


@pytest.mark.skipif(sys.platform != "linux", reason="the operators are built on Linux")
@pytest.mark.skipif(shutil.which("c++") is None and not is_required("compiler"), reason="needs a C++ compiler")
@pytest.mark.parametrize("operator", [onlstm.OPERATOR, prpn.OPERATOR], ids=lambda operator: operator.name)
def test_operators_are_built_where_there_is_a_compiler_and_those_of_other_versions_are_not_used(operator):
    assert NativeOperator(operator.name, operator.interface).library() is not None
    assert NativeOperator(operator.name, operator.interface + 1).library() is None


def compute(path: str) -> None:
    """Writes what both operators return for one problem, divided into `NUM_PARTS` parts.

    They are called directly: oneDNN's products are wrong where the system grants fewer threads than it counts on.
    """
    torch.set_num_threads(NUM_PARTS)
    found = []
    for module, make in ((onlstm, onlstm_inputs), (prpn, prpn_inputs)):
        torch.manual_seed(0)
        with torch.no_grad():
            inputs, options = make("cpu")
            trace = module.forward(inputs, options)
            grad_trace = type(trace)(*map(torch.randn_like, trace))
            found += [*trace, *flatten(module.backward(grad_trace, trace, inputs, options))]
    torch.save(found, path)


@needs_operator(onlstm.OPERATOR)
@needs_operator(prpn.OPERATOR)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_threads_that_there_are_take_the_parts_of_those_that_are_missing(num_threads, tmp_path, project_root):
    """The system grants fewer threads than were asked for, as where the others never get a core."""
    environment = {**os.environ, "OMP_THREAD_LIMIT": str(num_threads)}
    subprocess.run(
        [sys.executable, "-c", COMPUTE, tmp_path / "few.pt"],
        cwd=project_root,
        env=environment,
        check=True,
        timeout=300,
    )
    compute(tmp_path / "all.pt")
    few, expected = torch.load(tmp_path / "few.pt"), torch.load(tmp_path / "all.pt")
    assert len(few) == len(expected) > 10
    assert all(map(torch.equal, few, expected))
